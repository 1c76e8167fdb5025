// A blocking HTTP client and a running server for the tests of http/. Speaks raw bytes, so that tests can be rude.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

#include <prometheus/registry.h>

#include "http/message.h"
#include "http/server.h"

namespace caravan::http {

struct ClientAnswer {
  unsigned status = 0;
  Headers headers;
  std::string body;  // chunks joined
  [[nodiscard]] std::string header(std::string_view name) const;
};

class TestClient {
 public:
  explicit TestClient(std::uint16_t port);
  ~TestClient();
  TestClient(const TestClient&) = delete;
  TestClient& operator=(const TestClient&) = delete;

  void send(std::string_view bytes) const;
  // What comes within `patience`, at the most `bytes_max`; empty: nothing, or the server closed.
  std::string receive(std::chrono::milliseconds patience = std::chrono::seconds(10), std::size_t bytes_max = 65536);
  // Everything until the server closes or `patience` passes without a byte.
  std::string receive_all(std::chrono::milliseconds patience = std::chrono::seconds(10));
  // Reads on until `text` has come; returns everything up to now. Fails (returns what came) when it does not come.
  std::string receive_until(std::string_view text, std::chrono::milliseconds patience = std::chrono::seconds(10));
  // One whole response; none: the server closed before it was complete.
  std::optional<ClientAnswer> answer(std::chrono::milliseconds patience = std::chrono::seconds(20));
  std::optional<ClientAnswer> get(std::string_view path, const Headers& headers = {});
  std::optional<ClientAnswer> post(std::string_view path, std::string_view body, const Headers& headers = {});

  void half_close() const;
  void reset();  // RST instead of FIN
  void close();
  // Whether the server has closed its side within `patience`.
  bool closed_by_server(std::chrono::milliseconds patience);

 private:
  int socket_ = -1;
  std::string pending_;
  bool eof_ = false;
};

std::string request_text(std::string_view method, std::string_view path, std::string_view body, const Headers& headers);

// A server that runs on a thread of its own for as long as this lives.
class RunningServer {
 public:
  explicit RunningServer(ServerOptions options = {});
  ~RunningServer();
  RunningServer(const RunningServer&) = delete;
  RunningServer& operator=(const RunningServer&) = delete;

  Server& server() { return *server_; }
  prometheus::Registry& registry() { return registry_; }
  [[nodiscard]] std::uint16_t port() const { return server_->port(); }
  // Waits for run() to return; false: it did not within `patience`.
  bool ends_within(std::chrono::milliseconds patience);

 private:
  prometheus::Registry registry_;
  std::unique_ptr<Server> server_;
  std::atomic<bool> ended_ = false;
  std::thread thread_;
};

// Polls until `condition` holds; false: it did not within `patience`.
template <class Condition>
bool comes_true(Condition condition, std::chrono::milliseconds patience = std::chrono::seconds(5)) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace caravan::http
