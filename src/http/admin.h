// GET /caravan/v1/{memory,cache,sessions,cluster}: what operators and the dashboard ask.
#pragma once

#include "http/message.h"
#include "http/state.h"

namespace caravan::http {

HttpResponse answer_memory(const HttpRequest& request, const Serving& serving, ServerState& state);
HttpResponse answer_cache(const HttpRequest& request, const Serving& serving, ServerState& state);
HttpResponse answer_sessions(const HttpRequest& request, const Serving& serving, ServerState& state);
// Answers while loading and draining too: that is what the node's `state` tells.
HttpResponse answer_cluster(const HttpRequest& request, ServerState& state);

}  // namespace caravan::http
