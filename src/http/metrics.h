// /metrics in Prometheus' text format: the registry, gauges of the engine's state, and llama-server's `llamacpp:`
// names, so that boards made for it work. Answers while loading too, then without the engine's figures.
#pragma once

#include "http/message.h"
#include "http/state.h"

namespace caravan::http {

HttpResponse answer_metrics(const HttpRequest& request, ServerState& state);

}  // namespace caravan::http
