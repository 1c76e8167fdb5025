#include "cli/bench/child_server.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>
#include <utility>

namespace caravan::cli::bench {
namespace {

constexpr auto stop_patience = std::chrono::seconds(40);  // a little more than a server's drain timeout

// In the child, between fork and exec: only what is safe there.
[[noreturn]] void become_server(const char* program, char* const* arguments, int output, int log) {
#ifdef __linux__
  prctl(PR_SET_PDEATHSIG, SIGTERM);  // if the bench is killed, its servers go too
#endif
  dup2(output, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  execv(program, arguments);
  _exit(127);
}

}  // namespace

ChildServer::ChildServer(pid_t pid, int output, std::filesystem::path log)
    : pid_(pid), output_(output), log_(std::move(log)) {}

ChildServer::ChildServer(ChildServer&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      output_(std::exchange(other.output_, -1)),
      log_(std::exchange(other.log_, {})),
      url_(std::move(other.url_)) {}

Result<ChildServer> ChildServer::start(const std::string& program, const std::vector<std::string>& flags,
                                       Duration patience) {
  std::string log = (std::filesystem::temp_directory_path() / "caravan-bench-XXXXXX").string();
  const int log_file = mkostemp(log.data(), O_CLOEXEC);
  std::array<int, 2> pipe_ends{};
  if (log_file < 0 || pipe2(pipe_ends.data(), O_CLOEXEC) != 0) {
    if (log_file >= 0) close(log_file);
    return fail(ErrorCode::io, "cannot start a server: {}", std::strerror(errno));
  }
  std::vector<std::string> words{program, "serve", "--host", "127.0.0.1", "--port", "0"};
  words.insert(words.end(), flags.begin(), flags.end());
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (auto& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);

  const pid_t pid = fork();
  if (pid == 0) become_server(program.c_str(), arguments.data(), pipe_ends[1], log_file);
  close(log_file);
  close(pipe_ends[1]);
  ChildServer child(pid, pipe_ends[0], log);
  if (pid < 0) return fail(ErrorCode::io, "cannot start {}: {}", program, std::strerror(errno));
  if (const Status status = child.wait_until_ready(patience); !status) return std::unexpected(status.error());
  return child;
}

// The line "caravan: serving NAME on URL" on its stdout says that it serves.
Status ChildServer::wait_until_ready(Duration patience) {
  const TimePoint deadline = Clock::now() + patience;
  std::string said;
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd waiting{.fd = output_, .events = POLLIN, .revents = 0};
    if (left <= 0 || poll(&waiting, 1, static_cast<int>(left)) == 0) {
      return fail(ErrorCode::io, "the server that was started is not ready after {:.0f} s; {}", seconds(patience),
                  last_words());
    }
    std::array<char, 512> buffer{};
    const ssize_t read_bytes = read(output_, buffer.data(), buffer.size());
    if (read_bytes < 0 && errno == EINTR) continue;
    if (read_bytes <= 0) return fail(ErrorCode::io, "the server that was started ended: {}", last_words());
    said.append(buffer.data(), static_cast<std::size_t>(read_bytes));
    const auto end = said.find('\n');
    const auto on = said.rfind(" on http", end);
    if (end == std::string::npos || on == std::string::npos) continue;
    url_ = said.substr(on + 4, end - on - 4);
    return {};
  }
}

std::string ChildServer::last_words() const {
  std::ifstream file(log_);
  std::string last = "it said nothing";
  for (std::string line; std::getline(file, line);) {
    if (!line.empty()) last = line;
  }
  return last;
}

void ChildServer::stop() {
  if (output_ >= 0) close(std::exchange(output_, -1));
  const pid_t pid = std::exchange(pid_, -1);
  if (pid > 0) {
    kill(pid, SIGTERM);
    const TimePoint deadline = Clock::now() + stop_patience;
    while (waitpid(pid, nullptr, WNOHANG) == 0) {
      if (Clock::now() > deadline) {
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
        break;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }
  std::error_code ignored;
  if (!log_.empty()) std::filesystem::remove(std::exchange(log_, {}), ignored);
}

}  // namespace caravan::cli::bench
