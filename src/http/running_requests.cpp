#include "http/running_requests.h"

#include <utility>

#include "engine/engine.h"
#include "http/mailbox.h"

namespace caravan::http {

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
  if (submitted.error().code == ErrorCode::invalid_argument && prompt_tokens > context_tokens) {
    error.code = "context_length_exceeded";
    error.n_prompt_tokens = static_cast<std::uint32_t>(prompt_tokens);
    error.n_ctx = context_tokens;
  }
  return std::unexpected(std::move(error));
}

}  // namespace caravan::http
