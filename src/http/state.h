// What every handler sees. One a server; options and keys never change.
//
// Thread safety: `serving` is set once, on the network thread, before `phase` becomes ready; workers get it by value.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>

#include "http/http_metrics.h"
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

class Wakeups;
class Workers;

enum class Phase : std::uint8_t { loading, ready, draining };

struct Serving {
  const engine::Model* model = nullptr;
  const engine::ChatTemplate* chat_template = nullptr;  // null: the model has none
  engine::Engine* engine = nullptr;
  std::time_t since = 0;  // wall clock, for the `created` field of /v1/models
};

struct ServerState {
  ServerOptions options;
  prometheus::Registry& registry;
  HttpMetrics metrics;
  Workers& workers;
  std::shared_ptr<Wakeups> wakeups;
  std::string node_id;
  std::atomic<Phase> phase = Phase::loading;
  std::atomic<float> loading = 0;
  std::optional<Serving> serving;
  std::size_t bodies_bytes = 0;     // request bodies being read or held now; network thread
  std::uint32_t conversations = 0;  // requests being answered now; network thread
};

}  // namespace caravan::http
