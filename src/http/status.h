// What this server is and does, for people and their tools: llama-server's /props and /slots.
// Counts and names alone, never text.
#pragma once

#include "http/message.h"
#include "http/state.h"

namespace caravan::engine {
enum class SequenceState;
}

namespace caravan::http {

HttpResponse answer_props(const HttpRequest& request, const Serving& serving, ServerState& state);
HttpResponse answer_slots(const HttpRequest& request, const Serving& serving, ServerState& state);

const char* state_name(engine::SequenceState state);

}  // namespace caravan::http
