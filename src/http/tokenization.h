// /tokenize, /detokenize and /apply-template, as llama-server has them.
#pragma once

#include "http/message.h"
#include "http/state.h"

namespace caravan::http {

HttpResponse answer_tokenize(const HttpRequest& request, const Serving& serving, ServerState& state);
HttpResponse answer_detokenize(const HttpRequest& request, const Serving& serving, ServerState& state);
HttpResponse answer_apply_template(const HttpRequest& request, const Serving& serving, ServerState& state);

}  // namespace caravan::http
