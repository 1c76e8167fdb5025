// "/": what this is and what it answers, for people.
#pragma once

#include "http/message.h"
#include "http/state.h"

namespace caravan::http {

HttpResponse answer_home(const HttpRequest& request, ServerState& state);

}  // namespace caravan::http
