#include "http/test_client.h"

#include <algorithm>
#include <charconv>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/check.h"

namespace caravan::http {

std::string ClientAnswer::header(std::string_view name) const {
  const auto found = std::ranges::find_if(headers, [name](const auto& entry) { return same_token(entry.first, name); });
  return found == headers.end() ? std::string{} : found->second;
}

std::string request_text(std::string_view method, std::string_view path, std::string_view body,
                         const Headers& headers) {
  std::string text = fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\n", method, path);
  for (const auto& [name, value] : headers) text += fmt::format("{}: {}\r\n", name, value);
  if (method != "GET") text += fmt::format("Content-Type: application/json\r\nContent-Length: {}\r\n", body.size());
  text += "\r\n";
  text += body;
  return text;
}

TestClient::TestClient(std::uint16_t port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  CHECK(::connect(socket_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
}

TestClient::~TestClient() { close(); }

void TestClient::close() {
  if (socket_ >= 0) ::close(socket_);
  socket_ = -1;
}

void TestClient::send(std::string_view bytes) const {
  while (!bytes.empty()) {
    const auto sent = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(sent));
  }
}

std::string TestClient::receive(std::chrono::milliseconds patience, std::size_t bytes_max) {
  pollfd waited{socket_, POLLIN, 0};
  if (::poll(&waited, 1, static_cast<int>(patience.count())) <= 0) return {};
  std::string text(bytes_max, '\0');
  const auto received = ::recv(socket_, text.data(), text.size(), 0);
  eof_ = received <= 0;
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(received, 0)));
  return text;
}

std::string TestClient::receive_all(std::chrono::milliseconds patience) {
  std::string all = std::exchange(pending_, {});
  while (true) {
    const std::string more = receive(patience);
    if (more.empty()) return all;
    all += more;
  }
}

std::string TestClient::receive_until(std::string_view text, std::chrono::milliseconds patience) {
  std::string all = std::exchange(pending_, {});
  while (all.find(text) == std::string::npos) {
    const std::string more = receive(patience);
    if (more.empty()) break;
    all += more;
  }
  return all;
}

std::optional<ClientAnswer> TestClient::answer(std::chrono::milliseconds patience) {
  std::string all = receive_until("\r\n\r\n", patience);
  const auto end = all.find("\r\n\r\n");
  if (end == std::string::npos) return std::nullopt;
  ClientAnswer answer;
  const std::string head = all.substr(0, end + 2);
  std::string rest = all.substr(end + 4);
  std::from_chars(head.data() + 9, head.data() + 12, answer.status);
  for (auto line = head.find("\r\n") + 2; line < head.size(); line = head.find("\r\n", line) + 2) {
    const auto colon = head.find(": ", line);
    answer.headers.emplace_back(head.substr(line, colon - line),
                                head.substr(colon + 2, head.find("\r\n", line) - colon - 2));
  }
  const auto more = [&] {
    const std::string text = receive(patience);
    rest += text;
    return !text.empty();
  };
  if (answer.header("transfer-encoding") == "chunked") {
    while (true) {
      while (rest.find("\r\n") == std::string::npos)
        if (!more()) return std::nullopt;
      std::size_t size = 0;
      std::from_chars(rest.data(), rest.data() + rest.size(), size, 16);
      const auto begin = rest.find("\r\n") + 2;
      while (rest.size() < begin + size + 2)
        if (!more()) return std::nullopt;
      answer.body += rest.substr(begin, size);
      rest.erase(0, begin + size + 2);
      if (size == 0) break;
    }
  } else {
    std::size_t size = 0;
    const std::string length = answer.header("content-length");
    std::from_chars(length.data(), length.data() + length.size(), size);
    while (rest.size() < size)
      if (!more()) return std::nullopt;
    answer.body = rest.substr(0, size);
    rest.erase(0, size);
  }
  pending_ = rest;
  return answer;
}

std::optional<ClientAnswer> TestClient::get(std::string_view path, const Headers& headers) {
  send(request_text("GET", path, {}, headers));
  return answer();
}

std::optional<ClientAnswer> TestClient::post(std::string_view path, std::string_view body, const Headers& headers) {
  send(request_text("POST", path, body, headers));
  return answer();
}

void TestClient::half_close() const { ::shutdown(socket_, SHUT_WR); }

void TestClient::reset() {
  const linger abrupt{1, 0};
  ::setsockopt(socket_, SOL_SOCKET, SO_LINGER, &abrupt, sizeof abrupt);
  close();
}

bool TestClient::closed_by_server(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!eof_ && std::chrono::steady_clock::now() < deadline) receive(std::chrono::milliseconds(10));
  return eof_;
}

RunningServer::RunningServer(ServerOptions options) {
  options.port = 0;
  auto created = Server::create(std::move(options), registry_);
  CHECK(created.has_value());
  server_ = std::move(*created);
  thread_ = std::thread([this] {
    server_->run();
    ended_ = true;
  });
}

RunningServer::~RunningServer() {
  server_->stop();
  thread_.join();
}

bool RunningServer::ends_within(std::chrono::milliseconds patience) {
  return comes_true([this] { return ended_.load(); }, patience);
}

}  // namespace caravan::http
