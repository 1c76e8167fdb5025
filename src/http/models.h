// /v1/models and /v1/models/{id}.
#pragma once

#include "http/message.h"
#include "http/state.h"

namespace caravan::http {

HttpResponse answer_models(const HttpRequest& request, const Serving& serving, ServerState& state);
HttpResponse answer_model(const HttpRequest& request, const Serving& serving, ServerState& state);

}  // namespace caravan::http
