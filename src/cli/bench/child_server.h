// A `caravan serve` of this same program, started for one run of the bench on a free port and stopped after it.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <sys/types.h>

#include "base/clock.h"
#include "base/result.h"

namespace caravan::cli::bench {

class ChildServer {
 public:
  // Waits until it serves. Errors: it could not be started, ended, or was not ready in time; with its last words.
  static Result<ChildServer> start(const std::string& program, const std::vector<std::string>& flags,
                                   Duration patience);
  ~ChildServer() { stop(); }
  ChildServer(ChildServer&& other) noexcept;
  ChildServer& operator=(ChildServer&&) = delete;

  [[nodiscard]] const std::string& url() const { return url_; }
  // SIGTERM, and SIGKILL if that does not help; returns when it is gone.
  void stop();

 private:
  ChildServer(pid_t pid, int output, std::filesystem::path log);
  Status wait_until_ready(Duration patience);
  [[nodiscard]] std::string last_words() const;

  pid_t pid_ = -1;
  int output_ = -1;            // its stdout
  std::filesystem::path log_;  // its stderr
  std::string url_;
};

}  // namespace caravan::cli::bench
