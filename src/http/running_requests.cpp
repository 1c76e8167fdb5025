#include "http/running_requests.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "engine/engine.h"
#include "http/mailbox.h"

namespace caravan::http {
namespace {

// The engine's messages about a field begin with its name.
std::string param_of(std::string_view message) {
  constexpr std::array fields = {"temperature",      "top_k",     "top_p",          "min_p",
                                 "typical_p",        "mirostat",  "mirostat_tau",   "mirostat_eta",
                                 "presence_penalty", "n",         "repeat_penalty", "frequency_penalty",
                                 "repeat_last_n",    "logit_bias"};
  const std::string_view word = message.substr(0, message.find_first_of(" :"));
  const auto found = std::ranges::find(fields, word);
  return found == fields.end() ? std::string{} : std::string(*found);
}

}  // namespace

RunningRequests::RunningRequests(engine::Engine& engine, std::shared_ptr<Mailbox> mailbox)
    : engine_(&engine), mailbox_(std::move(mailbox)) {}

RunningRequests::RunningRequests(RunningRequests&& other) noexcept
    : engine_(other.engine_), mailbox_(std::move(other.mailbox_)), ids_(std::exchange(other.ids_, {})) {}

RunningRequests::~RunningRequests() {
  for (const std::string& id : ids_)
    if (!id.empty()) engine_->cancel(id);
}

ApiResult<void> RunningRequests::submit(engine::Request request) {
  const std::size_t prompt_tokens = request.prompt.size();
  const std::uint32_t context_tokens = engine_->status()->context_tokens;
  std::string id = request.id;
  const auto prompt = static_cast<std::uint32_t>(ids_.size());
  const Status submitted = engine_->submit(std::move(request), mailbox_->listener(prompt));
  if (submitted) {
    ids_.push_back(std::move(id));
    return {};
  }
  ApiError error = to_api_error(submitted.error());
  error.param = param_of(error.message);
  if (submitted.error().code == ErrorCode::invalid_argument && prompt_tokens > context_tokens) {
    error.code = "context_length_exceeded";
    error.n_prompt_tokens = static_cast<std::uint32_t>(prompt_tokens);
    error.n_ctx = context_tokens;
  }
  return std::unexpected(std::move(error));
}

}  // namespace caravan::http
