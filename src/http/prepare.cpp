#include "http/prepare.h"

#include <array>
#include <cstddef>
#include <utility>

#include <openssl/rand.h>

#include "base/check.h"
#include "engine/model.h"
#include "http/json_text.h"
#include "http/openai_params.h"

namespace caravan::http {
namespace {

using engine::AddSpecial;
using engine::ParseSpecial;
using engine::Token;

std::string random_id(std::string_view prefix) {
  std::array<unsigned char, 12> bytes{};
  CHECK(RAND_bytes(bytes.data(), bytes.size()) == 1);
  std::string id(prefix);
  for (const unsigned char byte : bytes) id += fmt::format("{:02x}", byte);
  return id;
}

std::unexpected<ApiError> rejected(const Error& error, std::string param) {
  ApiError rejection = to_api_error(error);
  rejection.param = std::move(param);
  return std::unexpected(std::move(rejection));
}

// The header names the session first; `prompt_cache_key` and `user` are in the body.
ApiResult<std::string> session_of(const HttpRequest& request, std::string from_body) {
  const std::string_view named = request.header("x-session-id");
  if (named.empty()) return from_body;
  if (named.size() > session_bytes_max)
    return bad_request("X-Session-Id", "X-Session-Id has {} bytes; {} at the most", named.size(), session_bytes_max);
  if (!is_utf8(named)) return bad_request("X-Session-Id", "X-Session-Id is not UTF-8");
  return std::string(named);
}

ApiResult<std::vector<Token>> chat_tokens(const CompletionCall& call, const Serving& serving) {
  if (serving.chat_template == nullptr)
    return bad_request("messages", "{} has no chat template; ask /v1/completions or start with --chat-template",
                       serving.model->info().name);
  auto tokens = serving.chat_template->tokens(call.messages, call.generation_prompt);
  if (!tokens) return rejected(tokens.error(), "messages");
  return std::move(*tokens);
}

ApiResult<std::vector<Token>> input_tokens(const PromptInput& input, const engine::Model& model, const char* field) {
  if (const auto* tokens = std::get_if<std::vector<Token>>(&input)) return *tokens;
  auto tokens = model.tokenize(std::get<std::string>(input), AddSpecial::yes, ParseSpecial::yes);
  if (!tokens) return rejected(tokens.error(), field);
  return std::move(*tokens);
}

std::string input_text(const PromptInput& input, const engine::Model& model) {
  if (const auto* text = std::get_if<std::string>(&input)) return *text;
  const auto& tokens = std::get<std::vector<Token>>(input);
  for (const Token token : tokens)
    if (!model.valid(token)) return {};  // the engine refuses such a prompt, and says why
  return valid_utf8(model.detokenize(tokens, ParseSpecial::yes));
}

ApiResult<void> resolve_bias_texts(CompletionCall& call, const engine::Model& model) {
  for (const auto& [text, bias] : call.logit_bias_texts) {
    const auto tokens = model.tokenize(text, AddSpecial::no, ParseSpecial::no);
    if (!tokens) return rejected(tokens.error(), "logit_bias");
    for (const Token token : *tokens) call.request.sampling.logit_bias.emplace_back(token, bias);
  }
  return {};
}

ApiResult<void> add_prompts(PreparedCompletion& prepared, const Serving& serving) {
  const CompletionCall& call = prepared.call;
  const auto add = [&prepared](std::vector<Token> tokens) {
    engine::Request request = prepared.call.request;
    request.id = fmt::format("{}-{}", prepared.head.id, prepared.requests.size());
    request.prompt = std::move(tokens);
    prepared.requests.push_back(std::move(request));
  };
  if (call.api == Api::chat) {
    auto tokens = chat_tokens(call, serving);
    if (!tokens) return std::unexpected(std::move(tokens.error()));
    add(std::move(*tokens));
    return {};
  }
  for (const PromptInput& prompt : call.prompts) {
    auto tokens = input_tokens(prompt, *serving.model, "prompt");
    if (!tokens) return std::unexpected(std::move(tokens.error()));
    add(std::move(*tokens));
    if (call.echo) prepared.echoes.push_back(input_text(prompt, *serving.model));
  }
  return {};
}

ParseLimits limits_of(const ServerState& state) {
  return {.choices_max = state.options.choices_max, .inputs_max = state.options.inputs_max};
}

}  // namespace

ApiResult<PreparedCompletion> prepare_completion(Api api, const HttpRequest& request, const Serving& serving,
                                                 const ServerState& state) {
  const TimePoint arrived = Clock::now();
  auto call =
      api == Api::chat ? parse_chat(request.body, limits_of(state)) : parse_completion(request.body, limits_of(state));
  if (!call) return std::unexpected(std::move(call.error()));
  auto session = session_of(request, std::move(call->request.session));
  if (!session) return std::unexpected(std::move(session.error()));
  PreparedCompletion prepared{.call = std::move(*call), .requests = {}, .echoes = {}, .head = {}};
  engine::Request& common = prepared.call.request;
  common.session = std::move(*session);
  common.tenant = request.tenant;
  common.arrived = arrived;
  if (auto resolved = resolve_bias_texts(prepared.call, *serving.model); !resolved)
    return std::unexpected(std::move(resolved.error()));
  prepared.head = {.api = api,
                   .id = random_id(api == Api::chat ? "chatcmpl-" : "cmpl-"),
                   .created = std::time(nullptr),
                   .model = serving.model->info().name,
                   .node = state.node_id,
                   .session = common.session,
                   .logprobs = common.top_logprobs.has_value(),
                   .usage_chunk = prepared.call.include_usage};
  if (auto added = add_prompts(prepared, serving); !added) return std::unexpected(std::move(added.error()));
  return prepared;
}

ApiResult<PreparedEmbeddings> prepare_embeddings(const HttpRequest& request, const Serving& serving,
                                                 const ServerState& state) {
  auto call = parse_embedding(request.body, limits_of(state));
  if (!call) return std::unexpected(std::move(call.error()));
  const std::uint32_t length = serving.model->info().embedding_length;
  if (call->dimensions && *call->dimensions != length)
    return bad_request("dimensions", "dimensions is {}; this model's embeddings have {}", *call->dimensions, length);
  PreparedEmbeddings prepared{.call = std::move(*call), .requests = {}};
  const std::string id = random_id("embd-");
  for (const PromptInput& input : prepared.call.inputs) {
    auto tokens = input_tokens(input, *serving.model, "input");
    if (!tokens) return std::unexpected(std::move(tokens.error()));
    engine::Request one;
    one.id = fmt::format("{}-{}", id, prepared.requests.size());
    one.tenant = request.tenant;
    one.prompt = std::move(*tokens);
    one.embedding = true;
    prepared.requests.push_back(std::move(one));
  }
  return prepared;
}

}  // namespace caravan::http
