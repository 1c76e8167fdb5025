// The engine requests that one HTTP request has under way. Those that have not ended are cancelled when this goes:
// because the client went, the response failed, or one of them did.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/request.h"
#include "http/api_error.h"

namespace caravan::engine {
class Engine;
}

namespace caravan::http {

class Mailbox;

class RunningRequests {
 public:
  // `engine` must outlive this.
  RunningRequests(engine::Engine& engine, std::shared_ptr<Mailbox> mailbox);
  ~RunningRequests();
  RunningRequests(RunningRequests&& other) noexcept;
  RunningRequests& operator=(RunningRequests&&) = delete;

  // The next prompt; its mail is numbered as it was submitted. Takes as long as compiling its grammar does.
  // A prompt longer than the context is refused with both counts.
  ApiResult<void> submit(engine::Request request);
  // The last event of that prompt has come: there is nothing left to cancel.
  void ended(std::uint32_t prompt) { ids_[prompt].clear(); }

 private:
  engine::Engine* engine_;
  std::shared_ptr<Mailbox> mailbox_;
  std::vector<std::string> ids_;  // by prompt; empty: ended
};

}  // namespace caravan::http
