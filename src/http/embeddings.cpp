#include "http/embeddings.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <boost/asio/this_coro.hpp>

#include "engine/model.h"
#include "http/connection.h"
#include "http/inbox.h"
#include "http/prepare.h"
#include "http/running_requests.h"
#include "http/workers.h"

namespace caravan::http {
namespace {

namespace asio = boost::asio;

constexpr std::size_t at_once = 16;  // of one client's inputs in the engine's queue, so that others find room there

class EmbeddingJob {
 public:
  EmbeddingJob(PreparedEmbeddings prepared, RunningRequests running)
      : prepared_(std::move(prepared)), running_(std::move(running)), results_(prepared_.requests.size()) {}

  [[nodiscard]] bool done() const { return error_ || ended_ == results_.size(); }
  [[nodiscard]] const std::optional<ApiError>& error() const { return error_; }

  // Fills the engine's queue up to at_once. A full queue is only fatal when none of ours is on its way to make room.
  void submit_more() {
    while (!error_ && submitted_ < results_.size() && submitted_ - ended_ < at_once) {
      auto submitted = running_.submit(prepared_.requests[submitted_]);
      if (!submitted && submitted.error().status == 429 && submitted_ > ended_) return;
      if (!submitted) {
        if (results_.size() > 1) submitted.error().message += fmt::format(" (input {})", submitted_);
        error_ = std::move(submitted.error());
        return;
      }
      ++submitted_;
    }
  }

  void take(std::vector<Mail> mails) {
    for (Mail& mail : mails) {
      if (auto* embedding = std::get_if<engine::Embedding>(&mail.event)) {
        results_[mail.prompt] = std::move(*embedding);
      } else if (const auto* end = std::get_if<engine::RequestEnd>(&mail.event)) {
        prompt_tokens_ += end->account.prompt_tokens;
        running_.ended(mail.prompt);
        ++ended_;
      } else if (const auto* failed = std::get_if<engine::RequestFailed>(&mail.event)) {
        running_.ended(mail.prompt);
        if (!error_) error_ = to_api_error(failed->error);
      }
    }
  }

  [[nodiscard]] std::string body(std::string_view model) const {
    return render_embeddings(model, results_, prepared_.call.encoding, prompt_tokens_);
  }

 private:
  PreparedEmbeddings prepared_;
  RunningRequests running_;
  std::vector<engine::Embedding> results_;
  std::size_t submitted_ = 0;
  std::size_t ended_ = 0;
  std::uint32_t prompt_tokens_ = 0;
  std::optional<ApiError> error_;
};

}  // namespace

asio::awaitable<void> answer_embeddings(Connection& connection) {
  ServerState& state = connection.state();
  const Serving serving = *state.serving;
  const auto executor = co_await asio::this_coro::executor;
  const auto mailbox = std::make_shared<Mailbox>(state.wakeups, state.options.stream_bytes_max);
  Inbox inbox(executor, mailbox, [] {});
  auto prepare = [&connection, serving, &state] { return prepare_embeddings(connection.request(), serving, state); };
  auto prepared = co_await state.workers.run(std::move(prepare));
  connection.drop_body();
  if (!prepared) {
    co_await connection.send(error_response(prepared.error()));
    co_return;
  }
  EmbeddingJob job(std::move(*prepared), RunningRequests(*serving.engine, mailbox));
  job.submit_more();
  while (!job.done()) {
    const bool mail = co_await inbox.wait(state.options.keep_alive_interval);
    if (mail) job.take(inbox.take());
    job.submit_more();
  }
  if (job.error()) {
    co_await connection.send(error_response(*job.error()));
    co_return;
  }
  auto render = [&job, &serving] {
    return HttpResponse{.status = 200, .body = job.body(serving.model->info().name), .headers = {}};
  };
  HttpResponse response = co_await state.workers.run(std::move(render));
  co_await connection.send(std::move(response));
}

}  // namespace caravan::http
