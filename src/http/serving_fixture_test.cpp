#include "http/serving_fixture_test.h"

#include <cstdlib>
#include <utility>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "base/check.h"
#include "engine/chat_template.h"
#include "http/json_text.h"

namespace caravan::http {

namespace json = boost::json;

const engine::Model& demo_model() {
  static const auto model = [] {
    auto loaded = engine::Model::load(
        {.path = CARAVAN_SOURCE_DIR "/models/demo/desk-2.8m-q8_0.gguf", .alias = "desk", .progress = {}});
    CHECK(loaded.has_value());
    return std::move(*loaded);
  }();
  return *model;
}

engine::EngineOptions small_engine() {
  engine::EngineOptions options;
  options.kv_cells = 2048;
  options.parallel = 4;
  options.threads = 1;
  return options;
}

void ServingTest::serve(ServerOptions options, engine::EngineOptions engine_options) {
  auto engine = engine::Engine::create(demo_model(), std::move(engine_options), engine_registry_);
  ASSERT_TRUE(engine) << engine.error().message;
  engine_ = std::move(*engine);
  engine_->start();
  auto chat_template = engine::ChatTemplate::create(demo_model(), {});
  ASSERT_TRUE(chat_template) << chat_template.error().message;
  chat_template_ = std::move(*chat_template);
  running_ = std::make_unique<RunningServer>(std::move(options));
  running_->server().set_model(demo_model(), chat_template_.get(), *engine_);
  ASSERT_TRUE(comes_true([this] { return TestClient(port()).get("/health")->status == 200U; }));
}

void ServingTest::stop() {
  running_.reset();
  if (engine_) engine_->stop();
}

ClientAnswer ServingTest::get(std::string_view path, const Headers& headers) const {
  TestClient client(port());
  auto answer = client.get(path, headers);
  EXPECT_TRUE(answer) << path;
  return answer.value_or(ClientAnswer{});
}

ClientAnswer ServingTest::post(std::string_view path, std::string_view body, const Headers& headers) const {
  TestClient client(port());
  auto answer = client.post(path, body, headers);
  EXPECT_TRUE(answer) << path;
  return answer.value_or(ClientAnswer{});
}

json::object ServingTest::ask(std::string_view path, std::string_view body, const Headers& headers) const {
  const ClientAnswer answer = post(path, body, headers);
  EXPECT_EQ(answer.status, 200U) << answer.body;
  if (answer.status != 200U) return {};
  return json::parse(answer.body).as_object();
}

bool ServingTest::goes_idle(std::chrono::milliseconds patience) const {
  const auto idle = [this] {
    const auto status = engine_->status();
    return status->running == 0 && status->waiting == 0 && status->cells_live == 0;
  };
  return comes_true(idle, patience);
}

double ServingTest::metric(std::string_view name) const {
  const std::string text = get("/metrics").body;
  double sum = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    at = end + 1;
    if (!line.starts_with(name)) continue;
    if (line[name.size()] != ' ' && line[name.size()] != '{') continue;
    sum += std::strtod(line.c_str() + line.rfind(' '), nullptr);
  }
  return sum;
}

SseEvents events_of(std::string_view body) {
  SseEvents result;
  while (!body.empty()) {
    const auto end = body.find("\n\n");
    EXPECT_NE(end, std::string_view::npos) << body;
    if (end == std::string_view::npos) break;
    const std::string_view event = body.substr(0, end);
    body.remove_prefix(end + 2);
    if (event.starts_with(":")) {
      ++result.keep_alives;
      continue;
    }
    EXPECT_TRUE(event.starts_with("data: ")) << event;
    EXPECT_TRUE(is_utf8(event));
    EXPECT_FALSE(result.done) << "nothing follows [DONE]";
    if (event == "data: [DONE]")
      result.done = true;
    else
      result.events.push_back(json::parse(json::string_view(event.data() + 6, event.size() - 6)).as_object());
  }
  return result;
}

std::string chat_body(std::string_view content, std::string_view fields) {
  return fmt::format(R"({{"messages":[{{"role":"user","content":{}}}],"temperature":0{}{}}})",
                     to_text(json::value(json::string_view(content.data(), content.size()))), fields.empty() ? "" : ",",
                     fields);
}

std::string joined(const SseEvents& events, std::int64_t index) {
  std::string text;
  for (const json::object& event : events.events) {
    if (!event.contains("choices")) continue;
    for (const json::value& choice : event.at("choices").as_array()) {
      if (choice.at("index") != index) continue;
      const json::object& object = choice.as_object();
      if (const json::value* whole = object.if_contains("text")) text += std::string(whole->as_string());
      if (const json::value* delta = object.if_contains("delta"))
        if (const json::value* content = delta->as_object().if_contains("content"))
          text += std::string(content->as_string());
    }
  }
  return text;
}

}  // namespace caravan::http
