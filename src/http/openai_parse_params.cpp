#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include <boost/json.hpp>

#include "engine/json_schema.h"
#include "http/json_text.h"
#include "http/openai_params.h"

namespace caravan::http {
namespace {

namespace json = boost::json;

constexpr std::size_t stops_max = 32;
constexpr std::size_t stop_bytes_max = 1024;
constexpr std::size_t biases_max = 4096;

void read_sampling(JsonFields& fields, engine::SamplingParams& sampling) {
  fields.read("temperature", sampling.temperature);
  fields.read("top_k", sampling.top_k);
  fields.read("top_p", sampling.top_p);
  fields.read("min_p", sampling.min_p);
  fields.read("typical_p", sampling.typical_p);
  fields.read("repeat_penalty", sampling.repeat_penalty);
  fields.read("presence_penalty", sampling.presence_penalty);
  fields.read("frequency_penalty", sampling.frequency_penalty);
  fields.read("repeat_last_n", sampling.penalty_last_n);
  fields.read("mirostat", sampling.mirostat);
  fields.read("mirostat_tau", sampling.mirostat_tau);
  fields.read("mirostat_eta", sampling.mirostat_eta);
  fields.read("ignore_eos", sampling.ignore_eos);
  const auto seed =
      fields.integer("seed", std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max());
  if (seed && *seed != -1) sampling.seed = static_cast<std::uint32_t>(*seed);  // -1: random, as llama-server has it
}

// OpenAI's newer name first, then its older one, then llama-server's.
void read_max_tokens(JsonFields& fields, CompletionCall& call) {
  constexpr std::int64_t tokens_max = std::numeric_limits<std::int32_t>::max();
  for (const char* name : {"max_completion_tokens", "max_tokens", "n_predict"}) {
    const auto number =
        fields.integer(name, std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max());
    if (!number) continue;
    if (*number < -1 || *number == 0)
      fields.fail(name, "is {}; give 1 or more, or -1 for as many as the context holds", *number);
    // More than any context holds is the same as no limit.
    if (*number > 0) call.request.max_tokens = static_cast<std::uint32_t>(std::min(*number, tokens_max));
    return;
  }
}

void read_stop(JsonFields& fields, std::vector<std::string>& stop) {
  const json::value* value = fields.find("stop");
  if (value == nullptr) return;
  const auto add = [&](const json::value& element) {
    if (!element.is_string()) return fields.fail("stop", "holds {}; give strings", kind_name(element));
    const json::string& text = element.get_string();
    if (has_nul(text)) return fields.fail("stop", "holds a NUL character");
    if (text.size() > stop_bytes_max)
      return fields.fail("stop", "holds a string of {} bytes; {} at the most", text.size(), stop_bytes_max);
    if (!text.empty()) stop.emplace_back(text);
  };
  if (value->is_string()) return add(*value);
  if (!value->is_array()) return fields.fail("stop", "is {}; give a string or an array of strings", kind_name(*value));
  if (value->get_array().size() > stops_max)
    return fields.fail("stop", "holds {} strings; {} at the most", value->get_array().size(), stops_max);
  for (const json::value& element : value->get_array()) add(element);
}

std::optional<float> bias_of(const json::value& value) {
  if (value.is_bool() && !value.get_bool()) return -std::numeric_limits<float>::infinity();
  if (!value.is_number()) return std::nullopt;
  const auto bias = value.to_number<double>();
  if (!std::isfinite(bias) || std::abs(bias) > 1e6) return std::nullopt;
  return static_cast<float>(bias);
}

void add_bias(JsonFields& fields, CompletionCall& call, std::string_view key, const json::value& value) {
  const auto bias = bias_of(value);
  if (!bias)
    return fields.fail("logit_bias", "the bias of \"{}\" is {}; give a number, or false to ban it", key,
                       value.is_number() ? to_text(value) : std::string(kind_name(value)));
  engine::Token token = 0;
  const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), token);
  if (error == std::errc{} && end == key.data() + key.size())
    call.request.sampling.logit_bias.emplace_back(token, *bias);
  else if (!key.empty() && !has_nul(key))
    call.logit_bias_texts.emplace_back(key, *bias);
  else
    fields.fail("logit_bias", "\"{}\" is neither a token id nor text", key.empty() ? "" : "NUL");
}

// OpenAI's {"15043": -100}, or llama-server's [[15043, -100], ["text", false]].
void read_logit_bias(JsonFields& fields, CompletionCall& call) {
  const json::value* value = fields.find("logit_bias");
  if (value == nullptr) return;
  const std::size_t count = value->is_object()  ? value->get_object().size()
                            : value->is_array() ? value->get_array().size()
                                                : 0;
  if (count > biases_max) return fields.fail("logit_bias", "holds {} entries; {} at the most", count, biases_max);
  if (value->is_object()) {
    for (const auto& member : value->get_object())
      add_bias(fields, call, std::string_view(member.key().data(), member.key().size()), member.value());
    return;
  }
  if (!value->is_array()) return fields.fail("logit_bias", "is {}; give an object of token: bias", kind_name(*value));
  for (const json::value& element : value->get_array()) {
    if (!element.is_array() || element.get_array().size() != 2)
      return fields.fail("logit_bias", "holds {}; give [token, bias]", kind_name(element));
    const json::value& key = element.get_array()[0];
    if (key.is_string())
      add_bias(fields, call, std::string_view(key.get_string().data(), key.get_string().size()),
               element.get_array()[1]);
    else if (to_integer(key))
      add_bias(fields, call, std::to_string(*to_integer(key)), element.get_array()[1]);
    else
      return fields.fail("logit_bias", "holds {} for a token; give an id or text", kind_name(key));
  }
}

void use_schema(JsonFields& fields, const std::string& param, const json::value& schema, std::string& grammar) {
  if (!schema.is_object() && !schema.is_bool())
    return fields.fail(param, "is {}; give a JSON Schema object", kind_name(schema));
  auto made = engine::json_schema_to_grammar(json::serialize(schema));
  if (!made) return fields.fail(param, "{}", made.error().message);
  grammar = std::move(*made);
}

void read_response_format(JsonFields& fields, std::string& grammar) {
  const json::value* value = fields.find("response_format");
  if (value == nullptr) return;
  if (!value->is_object()) return fields.fail("response_format", "is {}; give an object", kind_name(*value));
  JsonFields inner(value->get_object(), "response_format.");
  std::string type;
  inner.read("type", type);
  if (inner.error()) return fields.fail(*inner.error());
  if (type == "text") return;
  if (type == "json_object") {
    // llama-server takes a schema here too.
    if (const json::value* schema = inner.find("schema"))
      return use_schema(fields, "response_format.schema", *schema, grammar);
    grammar = engine::json_object_grammar();
    return;
  }
  if (type != "json_schema")
    return fields.fail("response_format.type", "is \"{}\"; give text, json_object or json_schema", type);
  const json::value* named = inner.find("json_schema");
  if (named == nullptr || !named->is_object())
    return fields.fail("response_format.json_schema", "is missing; give {{\"name\", \"schema\"}}");
  const json::value* schema = named->get_object().if_contains("schema");
  if (schema == nullptr) return fields.fail("response_format.json_schema.schema", "is missing");
  use_schema(fields, "response_format.json_schema.schema", *schema, grammar);
}

void read_output_shape(JsonFields& fields, std::string& grammar) {
  read_response_format(fields, grammar);
  if (const json::value* schema = fields.find("json_schema")) {
    if (!grammar.empty()) return fields.fail("json_schema", "the output's shape is given twice; give it once");
    use_schema(fields, "json_schema", *schema, grammar);
  }
  std::string own;
  fields.read("grammar", own);
  if (own.empty()) return;
  if (!grammar.empty()) return fields.fail("grammar", "the output's shape is given twice; give it once");
  grammar = std::move(own);
}

void read_stream(JsonFields& fields, CompletionCall& call) {
  fields.read("stream", call.stream);
  const json::value* options = fields.find("stream_options");
  if (options == nullptr) return;
  if (!options->is_object()) return fields.fail("stream_options", "is {}; give an object", kind_name(*options));
  JsonFields inner(options->get_object(), "stream_options.");
  inner.read("include_usage", call.include_usage);
  if (inner.error()) fields.fail(*inner.error());
  if (!call.stream) call.include_usage = false;
}

void read_session(JsonFields& fields, std::string& session) {
  for (const char* name : {"prompt_cache_key", "user"}) {
    std::string text;
    fields.read(name, text);
    if (text.size() > session_bytes_max)
      fields.fail(name, "has {} bytes; {} at the most", text.size(), session_bytes_max);
    if (session.empty()) session = std::move(text);
  }
}

}  // namespace

void read_params(JsonFields& fields, const ParseLimits& limits, CompletionCall& call) {
  std::string model;
  fields.read("model", model);  // one model is served, under whatever name it is asked for
  read_sampling(fields, call.request.sampling);
  read_max_tokens(fields, call);
  read_stop(fields, call.request.stop);
  read_logit_bias(fields, call);
  read_output_shape(fields, call.request.sampling.grammar);
  read_stream(fields, call);
  read_session(fields, call.request.session);
  fields.read("cache_prompt", call.request.cache_prompt);
  std::int32_t slot = -1;
  fields.read("id_slot", slot);  // sequences are chosen by what they hold
  if (const auto choices = fields.integer("n", 1, limits.choices_max))
    call.request.choices = static_cast<std::uint32_t>(*choices);
}

}  // namespace caravan::http
