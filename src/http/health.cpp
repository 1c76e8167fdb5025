#include "http/health.h"

#include <string>

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include "base/clock.h"
#include "engine/engine.h"
#include "http/api_error.h"
#include "http/json_text.h"

namespace caravan::http {
namespace {

namespace json = boost::json;

HttpResponse unhealthy(std::string message) { return error_response(simple_error(503, std::move(message))); }

}  // namespace

HttpResponse answer_health(const HttpRequest& /*request*/, ServerState& state) {
  switch (state.phase.load()) {
    case Phase::loading:
      return unhealthy(fmt::format("Loading model: {:.0f} %", 100.0F * state.loading.load()));
    case Phase::draining:
      return unhealthy("draining: this node is about to stop");
    case Phase::ready:
      break;
  }
  const engine::Engine& engine = *state.serving->engine;
  if (const Duration age = engine.decode_age(); age > engine.options().hang_timeout)
    return unhealthy(fmt::format("a decode has been running for {:.0f} s", seconds(age)));
  json::object body;
  body["status"] = "ok";
  const auto status = engine.status();
  json::array notes;
  if (!status->layout_note.empty()) notes.emplace_back(status->layout_note);
  if (!status->sharing_note.empty()) notes.emplace_back(status->sharing_note);
  if (!notes.empty()) body["notes"] = std::move(notes);
  return {.status = 200, .body = to_text(body), .headers = {}};
}

}  // namespace caravan::http
