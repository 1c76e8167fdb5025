#include "engine/json_schema.h"

#include <random>
#include <regex>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "engine/model.h"
#include "engine/sampler.h"
#include "engine/text_stream.h"

namespace caravan::engine {
namespace {

namespace json = boost::json;

const Model& demo() {
  static const std::unique_ptr<Model> model = [] {
    auto loaded = Model::load({.path = CARAVAN_SOURCE_DIR "/models/demo/desk-2.8m-q8_0.gguf"});
    CHECK(loaded.has_value());
    return std::move(*loaded);
  }();
  return *model;
}

// What a model without any sense would say under the grammar: random logits, ends when the grammar allows.
std::optional<std::string> babble(const std::string& grammar, std::uint32_t seed) {
  SamplingParams params;
  params.grammar = grammar;
  params.seed = seed;
  params.top_k = 0;
  params.top_p = 1;
  params.min_p = 0;
  if (const Status valid = validate(params, demo()); !valid) {
    ADD_FAILURE() << valid.error().message << "\n" << grammar;
    return std::nullopt;
  }
  auto sampler = Sampler::create(demo(), params, 0);
  CHECK(sampler.has_value());
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 2);
  std::string text;
  std::vector<float> logits(demo().info().vocabulary);
  for (int i = 0; i < 600; ++i) {
    for (std::size_t token = 0; token < logits.size(); ++token) {
      // Short answers: what closes is likely, and so is the end.
      const std::string piece = demo().piece(static_cast<Token>(token), ParseSpecial::no);
      const bool closes = piece.find_first_of("\"}],:") != std::string::npos;
      logits[token] =
          normal(random) + (closes ? 5.0F : 0.0F) + (demo().ends_generation(static_cast<Token>(token)) ? 9.0F : 0.0F);
    }
    const auto sampled = sampler->sample(logits);
    if (!sampled) return std::nullopt;
    const Token token = *sampled;
    sampler->accept(token);
    if (demo().ends_generation(token)) {
      // Bytes without sense need not be UTF-8; a client gets them as the stream mends them.
      TextStream stream({});
      std::string whole = stream.push(text).text;
      return whole + stream.finish().text;
    }
    text += demo().piece(token, ParseSpecial::no);
  }
  return std::nullopt;  // too long to say anything about
}

// A small checker of the keywords the tests use.
bool satisfies(const json::value& value, const json::value& schema) {
  if (!schema.is_object()) return true;
  const json::object& object = schema.get_object();
  if (const auto* constant = object.if_contains("const")) return value == *constant;
  if (const auto* values = object.if_contains("enum")) {
    return std::ranges::find(values->get_array(), value) != values->get_array().end();
  }
  if (const auto* any = object.if_contains("anyOf")) {
    return std::ranges::any_of(any->get_array(), [&](const json::value& each) { return satisfies(value, each); });
  }
  const std::string type = object.contains("type") ? std::string(object.at("type").as_string()) : "";
  const auto bound = [&](const char* name) {
    return object.contains(name) ? std::optional(object.at(name).to_number<double>()) : std::nullopt;
  };
  if (type == "integer") {
    return value.is_int64() && (!bound("minimum") || value.to_number<double>() >= *bound("minimum")) &&
           (!bound("maximum") || value.to_number<double>() <= *bound("maximum"));
  }
  if (type == "number") return value.is_number();
  if (type == "boolean") return value.is_bool();
  if (type == "string") {
    if (!value.is_string()) return false;
    const std::string text(value.get_string());
    if (const auto* pattern = object.if_contains("pattern")) {
      return std::regex_search(text, std::regex(std::string(pattern->get_string())));
    }
    const auto length =
        static_cast<double>(std::ranges::count_if(text, [](char each) { return (each & 0xC0) != 0x80; }));
    return (!bound("minLength") || length >= *bound("minLength")) &&
           (!bound("maxLength") || length <= *bound("maxLength"));
  }
  if (type == "array") {
    if (!value.is_array()) return false;
    const auto size = static_cast<double>(value.get_array().size());
    if ((bound("minItems") && size < *bound("minItems")) || (bound("maxItems") && size > *bound("maxItems")))
      return false;
    return std::ranges::all_of(value.get_array(), [&](const json::value& each) {
      return !object.contains("items") || satisfies(each, object.at("items"));
    });
  }
  if (type == "object") {
    if (!value.is_object()) return false;
    if (const auto* required = object.if_contains("required")) {
      for (const json::value& name : required->get_array()) {
        if (!value.get_object().contains(name.get_string())) return false;
      }
    }
    const auto* properties = object.if_contains("properties");
    for (const auto& [name, member] : value.get_object()) {
      const json::value* known = properties == nullptr ? nullptr : properties->get_object().if_contains(name);
      if (known != nullptr) {
        if (!satisfies(member, *known)) return false;
      } else if (properties != nullptr &&
                 (!object.contains("additionalProperties") || object.at("additionalProperties") == false)) {
        return false;
      }
    }
  }
  return true;
}

class JsonSchemaOutputs : public testing::TestWithParam<const char*> {};

TEST_P(JsonSchemaOutputs, SatisfyTheSchema) {
  const auto grammar = json_schema_to_grammar(GetParam());
  ASSERT_TRUE(grammar) << grammar.error().message;
  const json::value schema = json::parse(GetParam());
  int checked = 0;
  for (std::uint32_t seed = 1; seed <= 12; ++seed) {
    const auto text = babble(*grammar, seed);
    if (!text) continue;
    ++checked;
    boost::system::error_code error;
    const json::value value = json::parse(*text, error);
    ASSERT_FALSE(error) << *text;
    EXPECT_TRUE(satisfies(value, schema)) << *text << "\n" << *grammar;
  }
  EXPECT_GT(checked, 3) << "too few outputs ended";
}

INSTANTIATE_TEST_SUITE_P(
    Schemas, JsonSchemaOutputs,
    testing::Values(
        R"({"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "n": {"type": "integer", "minimum": 3, "maximum": 25}}, "required": ["name", "n"]})",
        R"({"type": "object", "properties": {"a": {"type": "boolean"}, "b": {"type": "null"}, "c": {"enum": ["x", "ü", 3]}}})",
        R"({"type": "object", "properties": {"a": {"const": 1}, "b": {"type": "boolean"}, "c": {"const": 2}}, "required": ["b"]})",
        R"({"type": "array", "items": {"type": "integer", "minimum": -120, "maximum": 7}, "minItems": 2, "maxItems": 4})",
        R"({"type": "string", "minLength": 2, "maxLength": 5})",
        R"({"type": "string", "pattern": "^[A-Z]{2}-\\d{3}(a|b)?$"})",
        R"({"anyOf": [{"type": "integer"}, {"type": "boolean"}]})",
        R"({"type": "integer", "minimum": 98, "maximum": 1203})",
        R"({"type": "integer", "minimum": -5, "maximum": -3})"));

TEST(JsonSchema, RecursionAndReferencesAreFollowed) {
  const auto grammar = json_schema_to_grammar(
      R"({"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["next"]}}})");
  ASSERT_TRUE(grammar) << grammar.error().message;
  int checked = 0;
  for (std::uint32_t seed = 1; seed < 10; ++seed) {
    const auto text = babble(*grammar, seed);
    if (!text) continue;
    ++checked;
    json::value value = json::parse(*text);
    while (value.is_object()) value = value.get_object().at("next");
    EXPECT_TRUE(value.is_null());
  }
  EXPECT_GT(checked, 0);
}

TEST(JsonSchema, AdditionalNamesAreOtherNames) {
  const auto grammar = json_schema_to_grammar(
      R"({"type": "object", "properties": {"ab": {"const": 1}}, "additionalProperties": {"const": 2}})");
  ASSERT_TRUE(grammar) << grammar.error().message;
  for (std::uint32_t seed = 1; seed < 12; ++seed) {
    const auto text = babble(*grammar, seed);
    if (!text) continue;
    const json::value parsed = json::parse(*text);
    for (const auto& [name, value] : parsed.get_object()) {
      EXPECT_EQ(value, json::value(name == "ab" ? 1 : 2)) << *text;
    }
  }
}

TEST(JsonSchema, WhatCannotBeKeptIsRefusedByName) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"not": {"type": "string"}})", "'not'"},
      {R"({"type": "object", "patternProperties": {"a": {}}})", "patternProperties"},
      {R"({"type": "number", "minimum": 1})", "minimum"},
      {R"({"type": "array", "uniqueItems": true})", "uniqueItems"},
      {R"({"type": "strange"})", "strange"},
      {R"({"$ref": "#/nowhere"})", "#/nowhere"},
      {R"({"$ref": "http://example.com/schema"})", "$ref"},
      {R"({"type": "string", "pattern": "(?=a)b"})", "pattern"},
      {R"({"type": "integer", "minimum": 5, "maximum": 4})", "between"},
      {R"([1])", "schema"},
      {R"({"type":)", "JSON"},
  };
  for (const auto& [schema, named] : cases) {
    const auto grammar = json_schema_to_grammar(schema);
    ASSERT_FALSE(grammar) << schema;
    EXPECT_EQ(grammar.error().code, ErrorCode::invalid_argument);
    EXPECT_THAT(grammar.error().message, testing::HasSubstr(named));
  }
}

TEST(JsonSchema, ADeepSchemaIsRefusedAndNoCrash) {
  std::string deep;
  for (int i = 0; i < 120; ++i) deep += R"({"type":"array","items":)";
  deep += "true" + std::string(120, '}');
  EXPECT_FALSE(json_schema_to_grammar(deep));
}

TEST(JsonSchema, AnyObjectIsAnObject) {
  int checked = 0;
  for (std::uint32_t seed = 1; seed < 12; ++seed) {
    const auto text = babble(json_object_grammar(), seed);
    if (!text) continue;
    ++checked;
    EXPECT_TRUE(json::parse(*text).is_object()) << *text;
  }
  EXPECT_GT(checked, 0);
}

}  // namespace
}  // namespace caravan::engine
