// OpenAI's API as values: JSON to what was asked (openai_parse*.cpp), and answers to JSON (openai_render.cpp). Pure.
// Hostile bodies are answered with an ApiError of status 400, never with an exception.
#pragma once

#include <cstdint>
#include <ctime>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "engine/chat_template.h"
#include "engine/request.h"
#include "http/api_error.h"

namespace caravan::http {

enum class Api { chat, completions };

// Text to be tokenized, or tokens.
using PromptInput = std::variant<std::string, std::vector<engine::Token>>;

struct ParseLimits {
  std::uint32_t choices_max = 128;  // prompts times n
  std::uint32_t inputs_max = 2048;  // of one embeddings request
};

// What one POST to /v1/chat/completions or /v1/completions asks for.
struct CompletionCall {
  Api api = Api::chat;
  std::vector<engine::ChatMessage> messages;  // chat
  engine::GenerationPrompt generation_prompt = engine::GenerationPrompt::yes;
  std::vector<PromptInput> prompts;  // completions; one or more
  engine::Request request;           // all but id, tenant and prompt; `session` from the body
  std::vector<std::pair<std::string, float>> logit_bias_texts;  // every token of the text gets the bias
  bool stream = false;
  bool include_usage = false;  // of a stream, in a chunk of its own
  bool echo = false;           // completions: the prompt comes before the text
};

struct EmbeddingCall {
  enum class Encoding { floats, base64 };
  std::vector<PromptInput> inputs;  // one or more
  Encoding encoding = Encoding::floats;
  std::optional<std::uint32_t> dimensions;
};

ApiResult<CompletionCall> parse_chat(std::string_view body, const ParseLimits& limits);
ApiResult<CompletionCall> parse_completion(std::string_view body, const ParseLimits& limits);
ApiResult<EmbeddingCall> parse_embedding(std::string_view body, const ParseLimits& limits);

// What all chunks of a stream, or its one body, have in common.
struct ReplyHead {
  Api api = Api::chat;
  std::string id;
  std::time_t created = 0;
  std::string model;
  std::string node;
  std::string session;
  bool logprobs = false;     // asked for
  bool usage_chunk = false;  // the stream ends with one, so every other chunk says "usage": null
};

struct ChoiceText {
  std::uint32_t index = 0;
  std::string text;
  std::vector<engine::TokenLogprob> logprobs;
  std::uint32_t logprobs_offset = 0;  // characters of the text before these logprobs (completions' text_offset)
  std::optional<engine::FinishReason> finish;
};

enum class ChunkPlace { first, later };  // of its choice; the first one carries the role

// Several prompts in one request are accounted for as one.
engine::Account sum(std::span<const engine::Account> accounts);

// One event's JSON. `account` comes with the last chunk that has choices.
std::string render_chunk(const ReplyHead& head, const ChoiceText& choice, ChunkPlace place,
                         const engine::Account* account);
std::string render_usage_chunk(const ReplyHead& head, const engine::Account& account);
std::string render_body(const ReplyHead& head, std::span<const ChoiceText> choices, const engine::Account& account);

std::string render_embeddings(std::string_view model, std::span<const engine::Embedding> embeddings,
                              EmbeddingCall::Encoding encoding, std::uint32_t prompt_tokens);

// Characters of these tokens, as `text_offset` counts them.
std::uint32_t characters(std::span<const engine::TokenLogprob> logprobs);

}  // namespace caravan::http
