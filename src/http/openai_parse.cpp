// Request bodies of chat completions, completions and embeddings. Fields that all completions share are in
// openai_parse_params.cpp.
#include <exception>
#include <limits>
#include <utility>

#include <boost/json.hpp>

#include "http/json_fields.h"
#include "http/json_text.h"
#include "http/openai.h"
#include "http/openai_params.h"

namespace caravan::http {
namespace {

namespace json = boost::json;

// The text of one message: a string, or text parts, which are joined by line breaks as llama-server does.
ApiResult<std::string> parse_content(const json::value& content, const std::string& param) {
  if (content.is_string()) {
    if (has_nul(content.get_string())) return bad_request(param, "{}: holds a NUL character", param);
    return std::string(content.get_string());
  }
  if (!content.is_array())
    return bad_request(param, "{}: is {}; give a string or an array of text parts", param, kind_name(content));
  std::string joined;
  bool first = true;
  for (const json::value& part : content.get_array()) {
    if (!part.is_object()) return bad_request(param, "{}: a part is {}; give an object", param, kind_name(part));
    JsonFields fields(part.get_object());
    std::string type;
    std::string text;
    fields.read("type", type);
    if (type != "text" && type != "refusal" && !fields.error())
      return bad_request(param, "{}: a part of type \"{}\"; this server takes text alone", param, type);
    fields.read(type, text);
    if (fields.error()) return bad_request(param, "{}: a part's {}", param, fields.error()->message);
    if (fields.find(type) == nullptr) return bad_request(param, "{}: a part has no \"{}\"", param, type);
    if (!std::exchange(first, false)) joined += '\n';
    joined += text;
  }
  return joined;
}

ApiResult<engine::ChatMessage> parse_message(const json::value& value, std::size_t index) {
  const std::string param = fmt::format("messages[{}]", index);
  if (!value.is_object()) return bad_request(param, "{} is {}; give an object", param, kind_name(value));
  JsonFields fields(value.get_object(), param + ".");
  engine::ChatMessage message;
  fields.read("role", message.role);
  if (fields.error()) return std::unexpected(*fields.error());
  if (message.role.empty())
    return bad_request(param + ".role", "{} has no role; give system, user or assistant", param);
  if (message.role == "developer") message.role = "system";
  if (message.role == "tool" || message.role == "function")
    return bad_request(param + ".role", "{}: role \"{}\" needs tools, which this server does not offer", param,
                       message.role);
  if (message.role != "system" && message.role != "user" && message.role != "assistant")
    return bad_request(param + ".role", "{}: unknown role \"{}\"; give system, developer, user or assistant", param,
                       message.role);
  if (const json::value* calls = fields.find("tool_calls"); calls != nullptr)
    if (!calls->is_array() || !calls->get_array().empty())
      return bad_request(param + ".tool_calls", "{}: tool calls are not offered by this server", param);
  const json::value* content = fields.find("content");
  if (content == nullptr) {
    if (message.role != "assistant")
      return bad_request(param + ".content", "{}: a {} message has no content", param, message.role);
    return message;
  }
  auto text = parse_content(*content, param + ".content");
  if (!text) return std::unexpected(std::move(text.error()));
  message.content = std::move(*text);
  return message;
}

ApiResult<std::vector<engine::ChatMessage>> parse_messages(const json::object& object) {
  const json::value* value = object.if_contains("messages");
  if (value == nullptr) return bad_request("messages", "there are no messages; give an array of {{role, content}}");
  if (!value->is_array())
    return bad_request("messages", "messages is {}; give an array of {{role, content}}", kind_name(*value));
  const json::array& array = value->get_array();
  if (array.empty()) return bad_request("messages", "messages is empty; give at least one");
  std::vector<engine::ChatMessage> messages;
  messages.reserve(array.size());
  for (std::size_t i = 0; i < array.size(); ++i) {
    auto message = parse_message(array[i], i);
    if (!message) return std::unexpected(std::move(message.error()));
    messages.push_back(std::move(*message));
  }
  return messages;
}

ApiResult<std::vector<engine::Token>> parse_tokens(const json::array& array, std::string_view field) {
  std::vector<engine::Token> tokens;
  tokens.reserve(array.size());
  for (const json::value& element : array) {
    const auto token = to_integer(element);
    if (!token || *token < 0 || *token > std::numeric_limits<engine::Token>::max())
      return bad_request(std::string(field), "{}: {} is no token id", field,
                         element.is_number() ? to_text(element) : std::string(kind_name(element)));
    tokens.push_back(static_cast<engine::Token>(*token));
  }
  return tokens;
}

ApiResult<PromptInput> parse_text(const json::value& value, std::string_view field) {
  if (has_nul(value.get_string())) return bad_request(std::string(field), "{}: holds a NUL character", field);
  return std::string(value.get_string());
}

// A string, an array of strings, an array of token ids, or an array of such arrays.
ApiResult<std::vector<PromptInput>> parse_inputs(const json::object& object, std::string_view field, std::size_t max) {
  const std::string name(field);
  const json::value* value = object.if_contains(json::string_view(field.data(), field.size()));
  if (value == nullptr || value->is_null())
    return bad_request(name, "there is no {}; give a string, an array of strings, or token ids", field);
  std::vector<PromptInput> inputs;
  const auto add = [&inputs](auto parsed) -> ApiResult<void> {
    if (!parsed) return std::unexpected(std::move(parsed.error()));
    inputs.emplace_back(std::move(*parsed));
    return {};
  };
  if (value->is_string()) {
    if (auto added = add(parse_text(*value, field)); !added) return std::unexpected(std::move(added.error()));
    return inputs;
  }
  if (!value->is_array())
    return bad_request(name, "{} is {}; give a string, an array of strings, or token ids", field, kind_name(*value));
  const json::array& array = value->get_array();
  if (array.empty()) return bad_request(name, "{} is empty; give at least one", field);
  if (array.front().is_number()) {
    if (auto added = add(parse_tokens(array, field)); !added) return std::unexpected(std::move(added.error()));
    return inputs;
  }
  if (array.size() > max)
    return bad_request(name, "{} holds {} entries; give {} at the most", field, array.size(), max);
  for (const json::value& element : array) {
    ApiResult<void> added;
    if (element.is_string())
      added = add(parse_text(element, field));
    else if (element.is_array() && !element.get_array().empty())
      added = add(parse_tokens(element.get_array(), field));
    else
      return bad_request(name, "{} holds {}; give strings or arrays of token ids", field,
                         element.is_array() ? "an empty array" : kind_name(element));
    if (!added) return std::unexpected(std::move(added.error()));
  }
  return inputs;
}

// Fields that change what the answer is, and that this server does not know how to honour.
void refuse_tools(JsonFields& fields) {
  for (const char* name : {"tools", "functions"}) {
    const json::value* value = fields.find(name);
    if (value == nullptr || (value->is_array() && value->get_array().empty())) continue;
    fields.fail(name, "tools are not offered by this server; leave the field out");
  }
  const json::value* modalities = fields.find("modalities");
  if (modalities == nullptr || !modalities->is_array()) return;
  for (const json::value& modality : modalities->get_array())
    if (!modality.is_string() || modality.get_string() != "text")
      fields.fail("modalities", "this server answers with text alone");
}

ApiResult<CompletionCall> parse_chat_object(const json::object& object, const ParseLimits& limits) {
  CompletionCall call;
  call.api = Api::chat;
  auto messages = parse_messages(object);
  if (!messages) return std::unexpected(std::move(messages.error()));
  call.messages = std::move(*messages);
  JsonFields fields(object);
  refuse_tools(fields);
  bool generation_prompt = true;
  fields.read("add_generation_prompt", generation_prompt);
  call.generation_prompt = generation_prompt ? engine::GenerationPrompt::yes : engine::GenerationPrompt::no;
  bool logprobs = false;
  fields.read("logprobs", logprobs);
  const auto top = fields.integer("top_logprobs", 0, top_logprobs_max);
  if (top && *top > 0 && !logprobs) fields.fail("top_logprobs", "needs \"logprobs\": true");
  if (logprobs) call.request.top_logprobs = static_cast<std::uint32_t>(top.value_or(0));
  read_params(fields, limits, call);
  if (fields.error()) return std::unexpected(*fields.error());
  return call;
}

ApiResult<CompletionCall> parse_completion_object(const json::object& object, const ParseLimits& limits) {
  CompletionCall call;
  call.api = Api::completions;
  auto prompts = parse_inputs(object, "prompt", limits.choices_max);
  if (!prompts) return std::unexpected(std::move(prompts.error()));
  call.prompts = std::move(*prompts);
  JsonFields fields(object);
  if (const auto top = fields.integer("logprobs", 0, top_logprobs_max))
    call.request.top_logprobs = static_cast<std::uint32_t>(*top);
  fields.read("echo", call.echo);
  if (call.echo && call.request.top_logprobs)
    fields.fail("echo", "the prompt's own logprobs are not computed; ask for echo or logprobs, not both");
  std::string suffix;
  fields.read("suffix", suffix);
  if (!suffix.empty()) fields.fail("suffix", "text is not filled in before a suffix; leave the field out");
  read_params(fields, limits, call);
  if (const auto best_of = fields.integer("best_of", 1, limits.choices_max);
      best_of && *best_of != call.request.choices)
    fields.fail("best_of", "is {} with n {}; candidates are not ranked, so both must be equal", *best_of,
                call.request.choices);
  if (std::uint64_t{call.request.choices} * call.prompts.size() > limits.choices_max)
    fields.fail("n", "{} prompts with n {} are more than {} choices", call.prompts.size(), call.request.choices,
                limits.choices_max);
  if (fields.error()) return std::unexpected(*fields.error());
  return call;
}

ApiResult<EmbeddingCall> parse_embedding_object(const json::object& object, const ParseLimits& limits) {
  EmbeddingCall call;
  // llama-server's older name.
  const char* field = object.contains("input") || !object.contains("content") ? "input" : "content";
  auto inputs = parse_inputs(object, field, limits.inputs_max);
  if (!inputs) return std::unexpected(std::move(inputs.error()));
  call.inputs = std::move(*inputs);
  JsonFields fields(object);
  std::string encoding = "float";
  fields.read("encoding_format", encoding);
  if (encoding == "base64")
    call.encoding = EmbeddingCall::Encoding::base64;
  else if (encoding != "float")
    fields.fail("encoding_format", "is \"{}\"; give float or base64", encoding);
  if (const auto dimensions = fields.integer("dimensions", 1, 1 << 20))
    call.dimensions = static_cast<std::uint32_t>(*dimensions);
  if (fields.error()) return std::unexpected(*fields.error());
  return call;
}

template <class Call>
ApiResult<Call> parse(std::string_view body, const ParseLimits& limits,
                      ApiResult<Call> (*parse_fields)(const json::object&, const ParseLimits&)) {
  try {
    const auto object = parse_object(body);
    if (!object) return std::unexpected(object.error());
    return parse_fields(*object, limits);
  } catch (const std::exception& exception) {
    return bad_request({}, "the body cannot be read: {}", exception.what());
  }
}

}  // namespace

ApiResult<CompletionCall> parse_chat(std::string_view body, const ParseLimits& limits) {
  return parse(body, limits, parse_chat_object);
}

ApiResult<CompletionCall> parse_completion(std::string_view body, const ParseLimits& limits) {
  return parse(body, limits, parse_completion_object);
}

ApiResult<EmbeddingCall> parse_embedding(std::string_view body, const ParseLimits& limits) {
  return parse(body, limits, parse_embedding_object);
}

}  // namespace caravan::http
