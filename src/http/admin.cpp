#include "http/admin.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include <boost/json.hpp>

#include "engine/engine.h"
#include "http/json_text.h"
#include "http/status.h"

namespace caravan::http {
namespace {

namespace json = boost::json;

HttpResponse success(const json::object& object) { return {.status = 200, .body = to_text(object), .headers = {}}; }

const char* layout_name(engine::KvLayout layout) {
  switch (layout) {
    case engine::KvLayout::automatic:
      return "auto";
    case engine::KvLayout::unified:
      return "unified";
    case engine::KvLayout::streams:
      return "streams";
  }
  return "auto";
}

const char* phase_name(Phase phase) {
  switch (phase) {
    case Phase::loading:
      return "loading";
    case Phase::ready:
      return "ready";
    case Phase::draining:
      return "draining";
  }
  return "loading";
}

}  // namespace

HttpResponse answer_memory(const HttpRequest& /*request*/, const Serving& serving, ServerState& /*state*/) {
  json::array devices;
  for (const engine::DeviceMemory& memory : serving.engine->memory()) {
    json::object device;
    device["device"] = valid_utf8(memory.device);
    device["description"] = valid_utf8(memory.description);
    device["total_bytes"] = memory.total_bytes;
    device["free_bytes"] = memory.free_bytes;
    device["weights_bytes"] = memory.weights_bytes;
    device["kv_bytes"] = memory.kv_bytes;
    device["compute_bytes"] = memory.compute_bytes;
    devices.emplace_back(std::move(device));
  }
  json::object answer;
  answer["devices"] = std::move(devices);
  return success(answer);
}

HttpResponse answer_cache(const HttpRequest& /*request*/, const Serving& serving, ServerState& /*state*/) {
  const auto status = serving.engine->status();
  std::uint64_t spanned = 0;
  for (const auto& sequence : status->sequences) spanned += sequence.cells;
  // What sequences hold together rather than each for itself.
  const std::uint64_t shared = spanned > status->cells_used ? spanned - status->cells_used : 0;
  json::object device;
  device["enabled"] = serving.engine->options().kv_cache;
  device["layout"] = layout_name(status->layout);
  if (!status->layout_note.empty()) device["layout_note"] = status->layout_note;
  if (!status->sharing_note.empty()) device["sharing_note"] = status->sharing_note;
  device["cells_total"] = status->cells_total;
  device["cells_used"] = status->cells_used;
  device["cells_peak"] = status->cells_peak;
  device["cells_live"] = status->cells_live;
  device["cells_shared"] = shared;
  device["tokens_hit"] = status->prompt_tokens_cached;
  device["tokens_computed"] = status->prompt_tokens_computed;
  device["evictions"] = status->evictions;
  device["preemptions"] = status->preemptions;
  device["recoveries"] = status->recoveries;
  json::object answer;
  answer["device"] = std::move(device);
  return success(answer);
}

HttpResponse answer_sessions(const HttpRequest& /*request*/, const Serving& serving, ServerState& /*state*/) {
  const auto status = serving.engine->status();
  std::map<std::string, json::array> by_session;
  for (const auto& sequence : status->sequences) {
    if (sequence.state == engine::SequenceState::idle) continue;
    json::object entry;
    entry["sequence"] = sequence.id;
    entry["state"] = state_name(sequence.state);
    entry["prompt_tokens"] = sequence.prompt_tokens;
    entry["cached_tokens"] = sequence.cached_tokens;
    entry["decoded_tokens"] = sequence.decoded_tokens;
    entry["cells"] = sequence.cells;
    entry["cells_shared"] = sequence.cells_shared;
    by_session[sequence.session].emplace_back(std::move(entry));
  }
  json::array sessions;
  for (auto& [name, sequences] : by_session) {
    json::object session;
    session["session"] = valid_utf8(name);
    session["sequences"] = std::move(sequences);
    sessions.emplace_back(std::move(session));
  }
  json::object answer;
  answer["sessions"] = std::move(sessions);
  return success(answer);
}

HttpResponse answer_cluster(const HttpRequest& /*request*/, ServerState& state) {
  json::object node;
  node["id"] = state.node_id;
  node["state"] = phase_name(state.phase.load());
  node["role"] = state.options.role;
  json::array nodes;
  nodes.emplace_back(node);
  json::object answer;
  answer["node"] = state.node_id;
  answer["nodes"] = std::move(nodes);
  return success(answer);
}

}  // namespace caravan::http
