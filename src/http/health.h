// /health: 200 while requests are served, 503 while loading, draining, or when a decode hangs.
#pragma once

#include "http/message.h"
#include "http/state.h"

namespace caravan::http {

HttpResponse answer_health(const HttpRequest& request, ServerState& state);

}  // namespace caravan::http
