// The demo model served over real sockets, for tests.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <boost/json/object.hpp>
#include <gtest/gtest.h>

#include "engine/chat_template.h"
#include "engine/engine.h"
#include "engine/model.h"
#include "http/test_client.h"

namespace caravan::http {

// Loaded once a process.
const engine::Model& demo_model();

// A small engine: 4 sequences, 2048 cells, one compute thread.
engine::EngineOptions small_engine();

class ServingTest : public ::testing::Test {
 protected:
  void TearDown() override { stop(); }

  // Call once, before anything else.
  void serve(ServerOptions options = {}, engine::EngineOptions engine_options = small_engine());
  void stop();

  RunningServer& running() { return *running_; }
  engine::Engine& engine() { return *engine_; }
  [[nodiscard]] std::uint16_t port() const { return running_->port(); }

  ClientAnswer get(std::string_view path, const Headers& headers = {}) const;
  ClientAnswer post(std::string_view path, std::string_view body, const Headers& headers = {}) const;
  // The body of a 200 answer.
  boost::json::object ask(std::string_view path, std::string_view body, const Headers& headers = {}) const;
  // Nothing runs and nothing waits, within `patience`.
  bool goes_idle(std::chrono::milliseconds patience = std::chrono::seconds(2)) const;
  // The sum of a counter or gauge in /metrics, all labels together.
  double metric(std::string_view name) const;

 private:
  prometheus::Registry engine_registry_;
  std::unique_ptr<engine::Engine> engine_;
  std::unique_ptr<engine::ChatTemplate> chat_template_;
  std::unique_ptr<RunningServer> running_;
};

struct SseEvents {
  std::vector<boost::json::object> events;
  bool done = false;            // [DONE] came, and last
  std::size_t keep_alives = 0;  // comments
};
SseEvents events_of(std::string_view body);

// {"messages": [...one user message...], "temperature": 0, FIELDS}
std::string chat_body(std::string_view content, std::string_view fields = {});
// The text of all deltas of a choice.
std::string joined(const SseEvents& events, std::int64_t index = 0);

}  // namespace caravan::http
