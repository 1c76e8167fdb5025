// From a request's bytes to what the engine is asked: JSON, template, tokens. Takes milliseconds: for workers.
#pragma once

#include <string>
#include <vector>

#include "http/message.h"
#include "http/openai.h"
#include "http/state.h"

namespace caravan::http {

struct PreparedCompletion {
  CompletionCall call;
  std::vector<engine::Request> requests;  // one a prompt
  std::vector<std::string> echoes;        // the prompts as text, when the call asks for them
  ReplyHead head;
};

struct PreparedEmbeddings {
  EmbeddingCall call;
  std::vector<engine::Request> requests;
};

ApiResult<PreparedCompletion> prepare_completion(Api api, const HttpRequest& request, const Serving& serving,
                                                 const ServerState& state);
ApiResult<PreparedEmbeddings> prepare_embeddings(const HttpRequest& request, const Serving& serving,
                                                 const ServerState& state);

}  // namespace caravan::http
