#include "http/completions.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <boost/asio/this_coro.hpp>

#include "http/connection.h"
#include "http/inbox.h"
#include "http/prepare.h"
#include "http/reply.h"
#include "http/running_requests.h"
#include "http/workers.h"

namespace caravan::http {
namespace {

namespace asio = boost::asio;

struct Submitted {
  PreparedCompletion prepared;
  RunningRequests running;
};

// On a worker: JSON, template, tokens, grammar, and into the engine's queue.
ApiResult<Submitted> submit(Api api, const HttpRequest& request, const Serving& serving, const ServerState& state,
                            const std::shared_ptr<Mailbox>& mailbox) {
  auto prepared = prepare_completion(api, request, serving, state);
  if (!prepared) return std::unexpected(std::move(prepared.error()));
  RunningRequests running(*serving.engine, mailbox);
  for (engine::Request& each : prepared->requests) {
    auto submitted = running.submit(std::move(each));
    if (!submitted) return std::unexpected(std::move(submitted.error()));
  }
  return Submitted{std::move(*prepared), std::move(running)};
}

void note_ends(const std::vector<Mail>& mails, RunningRequests& running) {
  for (const Mail& mail : mails)
    if (std::holds_alternative<engine::RequestEnd>(mail.event) ||
        std::holds_alternative<engine::RequestFailed>(mail.event))
      running.ended(mail.prompt);
}

asio::awaitable<void> stream(Connection& connection, Inbox& inbox, Submitted& submitted) {
  const PreparedCompletion& prepared = submitted.prepared;
  StreamReply reply(prepared.head, static_cast<std::uint32_t>(prepared.requests.size()), prepared.call.request.choices,
                    prepared.echoes);
  while (!reply.done()) {
    const bool mail = co_await inbox.wait(connection.state().options.keep_alive_interval);
    std::string text = ": keep-alive\n\n";
    if (mail) {
      auto mails = inbox.take();
      note_ends(mails, submitted.running);
      text = reply.compose(std::move(mails));
    }
    // Nothing has been sent yet, so the client can still be told in the plain way.
    if (reply.error() && !connection.stream_begun()) {
      co_await connection.send(error_response(*reply.error()));
      co_return;
    }
    if (text.empty()) continue;
    const bool written = co_await connection.write_events(std::move(text));
    if (!written) co_return;
  }
  if (reply.error()) connection.close_after_response();
  co_await connection.end_events();
}

asio::awaitable<void> collect(Connection& connection, Inbox& inbox, Submitted& submitted) {
  const PreparedCompletion& prepared = submitted.prepared;
  BodyReply reply(prepared.head, static_cast<std::uint32_t>(prepared.requests.size()), prepared.call.request.choices,
                  prepared.echoes);
  while (!reply.done()) {
    const bool mail = co_await inbox.wait(connection.state().options.keep_alive_interval);
    if (!mail) continue;
    auto mails = inbox.take();
    note_ends(mails, submitted.running);
    reply.add(std::move(mails));
  }
  if (reply.error()) {
    co_await connection.send(error_response(*reply.error()));
    co_return;
  }
  auto render = [&reply] { return HttpResponse{.status = 200, .body = reply.body(), .headers = {}}; };
  HttpResponse response = co_await connection.state().workers.run(std::move(render));
  co_await connection.send(std::move(response));
}

asio::awaitable<void> answer(Connection& connection, Api api) {
  ServerState& state = connection.state();
  const auto executor = co_await asio::this_coro::executor;
  const auto mailbox = std::make_shared<Mailbox>(state.wakeups, state.options.stream_bytes_max);
  Inbox inbox(executor, mailbox, [&connection] { connection.abort(); });
  auto task = [&connection, &state, serving = *state.serving, mailbox, api] {
    return submit(api, connection.request(), serving, state, mailbox);
  };
  auto submitted = co_await state.workers.run(std::move(task));
  connection.drop_body();
  if (!submitted) {
    co_await connection.send(error_response(submitted.error()));
  } else if (submitted->prepared.call.stream) {
    co_await stream(connection, inbox, *submitted);
  } else {
    co_await collect(connection, inbox, *submitted);
  }
}

}  // namespace

asio::awaitable<void> answer_chat(Connection& connection) { return answer(connection, Api::chat); }
asio::awaitable<void> answer_completion(Connection& connection) { return answer(connection, Api::completions); }

}  // namespace caravan::http
