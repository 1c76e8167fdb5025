#include "engine/jinja_renderer.h"

#include <cerrno>

#include <boost/json.hpp>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/jinja_renderer_script.h"

namespace caravan::engine {
namespace {

constexpr std::size_t answer_bytes_max = std::size_t{512} << 20;
// Python and Jinja2 load from a cold disk.
constexpr auto begin_max = std::chrono::seconds(20);

bool send_all(int socket, std::string_view bytes, TimePoint deadline) {
  while (!bytes.empty()) {
    pollfd ready{.fd = socket, .events = POLLOUT, .revents = 0};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0 || poll(&ready, 1, static_cast<int>(left)) <= 0) return false;
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno != EAGAIN && errno != EINTR) return false;
    if (sent > 0) bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
  return true;
}

// A line, without its end; empty if the other side closed, sent too much, or took too long.
std::string receive_line(int socket, TimePoint deadline) {
  std::string line;
  std::string buffer(64 * 1024, '\0');
  while (line.size() < answer_bytes_max) {
    pollfd ready{.fd = socket, .events = POLLIN, .revents = 0};
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0 || poll(&ready, 1, static_cast<int>(left)) <= 0) return {};
    const ssize_t count = recv(socket, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (count <= 0) return {};
    line.append(buffer, 0, static_cast<std::size_t>(count));
    if (line.ends_with('\n')) {  // one answer at a time: its end is the end of what was sent
      line.pop_back();
      return line;
    }
  }
  return {};
}

}  // namespace

JinjaRenderer::~JinjaRenderer() {
  const Lock lock(mutex_);
  finish();
}

void JinjaRenderer::finish() {
  if (socket_ >= 0) close(socket_);
  socket_ = -1;
  if (child_ <= 0) return;
  kill(child_, SIGKILL);
  waitpid(child_, nullptr, 0);
  child_ = -1;
}

Status JinjaRenderer::begin() {
  if (child_ > 0) return {};
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    return fail(ErrorCode::io, "the template renderer cannot be started: no socket pair");
  }
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_adddup2(&files, pair[1], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, pair[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
  // Signals as a program expects them, whatever this thread has blocked.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigset_t all;
  sigemptyset(&none);
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  // -I: nothing from the environment, the user's site or the working directory. It ends when our end of the socket
  // does.
  const char* const arguments[] = {"python3", "-I", "-X", "utf8", "-c", jinja_renderer_script, nullptr};
  const char* const environment[] = {"LANG=C.UTF-8", nullptr};
  pid_t child = -1;
  const int problem = posix_spawn(&child, "/usr/bin/python3", &files, &attributes, const_cast<char* const*>(arguments),
                                  const_cast<char* const*>(environment));
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  close(pair[1]);
  if (problem != 0) {
    close(pair[0]);
    return fail(
        ErrorCode::unsupported,
        "this chat template needs /usr/bin/python3 with Jinja2; install python3-jinja2, or give --chat-template");
  }
  child_ = child;
  socket_ = pair[0];
  const auto loaded =
      exchange(boost::json::serialize(boost::json::object{{"source", settings_.source}}), Clock::now() + begin_max);
  if (!loaded) {
    finish();
    return std::unexpected(loaded.error());
  }
  return {};
}

Result<std::string> JinjaRenderer::exchange(const std::string& line, TimePoint deadline) {
  std::string answer;
  if (send_all(socket_, line + "\n", deadline)) answer = receive_line(socket_, deadline);
  if (answer.empty()) {
    finish();
    return fail(ErrorCode::io, "rendering the chat template took more than {:.0f} s or more memory than it may",
                seconds(settings_.deadline));
  }
  boost::system::error_code error;
  const boost::json::value parsed = boost::json::parse(answer, error);
  const boost::json::object* object = error ? nullptr : parsed.if_object();
  const auto text = [&](const char* key) -> const boost::json::string* {
    const boost::json::value* value = object == nullptr ? nullptr : object->if_contains(key);
    return value == nullptr ? nullptr : value->if_string();
  };
  if (const auto* rendered = text("text")) return std::string(*rendered);
  if (text("missing") != nullptr) {
    finish();
    return fail(
        ErrorCode::unsupported,
        "this chat template needs Jinja2; install python3-jinja2, or give --chat-template with a built-in name");
  }
  const auto* message = text("error");
  return fail(ErrorCode::invalid_argument, "the chat template refuses these messages: {}",
              message == nullptr ? "no reason given" : std::string(*message));
}

Result<std::string> JinjaRenderer::render(std::span<const ChatMessage> messages, GenerationPrompt generation) {
  boost::json::array list;
  for (const ChatMessage& message : messages) {
    list.push_back(boost::json::object{{"role", message.role}, {"content", message.content}});
  }
  const std::string line =
      boost::json::serialize(boost::json::object{{"messages", std::move(list)},
                                                 {"generation", generation == GenerationPrompt::yes},
                                                 {"bos", settings_.bos},
                                                 {"eos", settings_.eos}});
  const Lock lock(mutex_);
  const bool begun_before = child_ > 0;
  if (const Status begun = begin(); !begun) return std::unexpected(begun.error());
  const TimePoint deadline = Clock::now() + settings_.deadline;
  auto rendered = exchange(line, deadline);
  if (rendered || rendered.error().code != ErrorCode::io || !begun_before || Clock::now() >= deadline) return rendered;
  // The child was gone, killed by someone else since the last time.
  if (const Status begun = begin(); !begun) return std::unexpected(begun.error());
  return exchange(line, deadline);
}

}  // namespace caravan::engine
