#include "http/status.h"

#include <string>
#include <utility>

#include <boost/json.hpp>

#include "engine/engine.h"
#include "engine/model.h"
#include "http/access.h"
#include "http/json_text.h"

namespace caravan::http {
namespace {

namespace json = boost::json;

json::object default_params() {
  const engine::SamplingParams defaults;
  const auto number = [](float value) { return std::stod(fmt::format("{}", value)); };  // 0.8, not 0.800000012
  json::object params;
  params["temperature"] = number(defaults.temperature);
  params["top_k"] = defaults.top_k;
  params["top_p"] = number(defaults.top_p);
  params["min_p"] = number(defaults.min_p);
  params["typical_p"] = number(defaults.typical_p);
  params["repeat_penalty"] = number(defaults.repeat_penalty);
  params["repeat_last_n"] = defaults.penalty_last_n;
  params["presence_penalty"] = number(defaults.presence_penalty);
  params["frequency_penalty"] = number(defaults.frequency_penalty);
  params["mirostat"] = defaults.mirostat;
  params["mirostat_tau"] = number(defaults.mirostat_tau);
  params["mirostat_eta"] = number(defaults.mirostat_eta);
  params["n_predict"] = -1;
  return params;
}

bool is_processing(engine::SequenceState state) {
  return state != engine::SequenceState::idle && state != engine::SequenceState::resident;
}

json::object slot_object(const engine::SequenceStatus& sequence, std::uint32_t context_tokens) {
  json::object slot;
  slot["id"] = sequence.id;
  slot["n_ctx"] = context_tokens;
  slot["is_processing"] = is_processing(sequence.state);
  slot["state"] = state_name(sequence.state);
  slot["n_prompt_tokens"] = sequence.prompt_tokens;
  slot["n_prompt_tokens_cache"] = sequence.cached_tokens;
  slot["n_decoded"] = sequence.decoded_tokens;
  slot["cells"] = sequence.cells;
  slot["cells_shared"] = sequence.cells_shared;
  return slot;
}

}  // namespace

const char* state_name(engine::SequenceState state) {
  switch (state) {
    case engine::SequenceState::idle:
      return "idle";
    case engine::SequenceState::waiting_for_prefix:
      return "waiting_for_prefix";
    case engine::SequenceState::restoring:
      return "restoring";
    case engine::SequenceState::prefilling:
      return "prefilling";
    case engine::SequenceState::decoding:
      return "decoding";
    case engine::SequenceState::resident:
      return "resident";
  }
  return "unknown";
}

HttpResponse answer_props(const HttpRequest& /*request*/, const Serving& serving, ServerState& /*state*/) {
  const engine::ModelInfo& info = serving.model->info();
  const auto status = serving.engine->status();
  json::object generation;
  generation["n_ctx"] = status->context_tokens;
  generation["params"] = default_params();
  json::object modalities;
  modalities["vision"] = false;
  modalities["audio"] = false;
  json::object props;
  props["default_generation_settings"] = std::move(generation);
  props["total_slots"] = status->parallel;
  props["model_alias"] = valid_utf8(info.name);
  props["model_path"] = valid_utf8(info.path.filename().string());
  props["modalities"] = std::move(modalities);
  props["chat_template"] = valid_utf8(info.chat_template);
  props["bos_token"] = valid_utf8(serving.model->bos_text());
  props["eos_token"] = valid_utf8(serving.model->eos_text());
  props["build_info"] = "caravan";
  return {.status = 200, .body = to_text(props), .headers = {}};
}

HttpResponse answer_slots(const HttpRequest& request, const Serving& serving, ServerState& state) {
  // Even lengths would tell one tenant about another's prompts.
  if (serving.engine->options().tenant_isolation)
    if (const auto admin = admit(request, Access::admin, state.options); !admin) return error_response(admin.error());
  const auto status = serving.engine->status();
  json::array slots;
  for (const auto& sequence : status->sequences) slots.emplace_back(slot_object(sequence, status->context_tokens));
  return {.status = 200, .body = to_text(json::value(std::move(slots))), .headers = {}};
}

}  // namespace caravan::http
