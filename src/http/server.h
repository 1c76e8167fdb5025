// The HTTP server: one network thread that never blocks, and a few workers for what takes time (templates, tokenizing).
//
// Order of life: create (bound and listening; every call is answered 503 "loading" but /health, / and /metrics)
// -> run on a thread of its own -> set_model once the model is loaded -> drain or stop -> run returns -> destroy.
// Thread safety: set_model, set_loading, drain, stop and port may be called from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "http/server_options.h"

namespace prometheus {
class Registry;
}

namespace caravan::engine {
class ChatTemplate;
class Engine;
class Model;
}  // namespace caravan::engine

namespace caravan::http {

class Server {
 public:
  // `registry` must outlive the server. Errors: invalid_argument (options), io (address in use, no such address).
  static Result<std::unique_ptr<Server>> create(ServerOptions options, prometheus::Registry& registry);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // 0..1 while the model loads; shown by /health.
  void set_loading(float progress);
  // Serving begins. All three must outlive the server; `chat_template` may be null (embedding models), then chat
  // answers 400. The engine is started and stopped by the caller; stop it after run() has returned.
  void set_model(const engine::Model& model, const engine::ChatTemplate* chat_template, engine::Engine& engine);

  // The network thread: returns after stop(), or when a drain is over.
  void run();
  // New requests get 503, running ones finish or are cut after drain_timeout; then run() returns.
  void drain();
  // Running requests are cancelled; run() returns at once.
  void stop();

  [[nodiscard]] std::uint16_t port() const;  // the bound one
  [[nodiscard]] std::string url() const;     // "http://127.0.0.1:8080"

 private:
  class Network;
  explicit Server(std::unique_ptr<Network> network);
  std::unique_ptr<Network> network_;
};

}  // namespace caravan::http
