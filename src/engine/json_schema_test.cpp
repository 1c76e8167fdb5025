#include "engine/json_schema.h"

#include <chrono>
#include <cmath>
#include <random>
#include <regex>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <llama.h>
#include <rapidcheck.h>

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
  if (type == "integer" || type == "number") {
    if (!value.is_number() || (type == "integer" && !value.is_int64())) return false;
    const double number = value.to_number<double>();
    return (!bound("minimum") || number >= *bound("minimum")) && (!bound("maximum") || number <= *bound("maximum")) &&
           (!bound("exclusiveMinimum") || number > *bound("exclusiveMinimum")) &&
           (!bound("exclusiveMaximum") || number < *bound("exclusiveMaximum"));
  }
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_bool();
  if (type == "string") {
    if (!value.is_string()) return false;
    const std::string text(value.get_string());
    if (const auto* pattern = object.if_contains("pattern")) {
      // std::regex counts bytes: other texts are left to the other tests.
      const bool ascii = std::ranges::all_of(text, [](char each) { return static_cast<unsigned char>(each) < 0x80; });
      return !ascii || std::regex_search(text, std::regex(std::string(pattern->get_string())));
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
    const json::array prefix = object.contains("prefixItems") ? object.at("prefixItems").as_array() : json::array{};
    for (std::size_t i = 0; i < value.get_array().size(); ++i) {
      const json::value& item = value.get_array()[i];
      if (i < prefix.size() ? !satisfies(item, prefix[i])
                            : object.contains("items") && !satisfies(item, object.at("items"))) {
        return false;
      }
    }
    return true;
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
        R"({"type": "integer", "minimum": -5, "maximum": -3})", R"({"type": "integer", "minimum": 1})",
        R"({"type": "number", "minimum": 0.25, "exclusiveMaximum": 1})",
        R"({"type": "number", "exclusiveMinimum": -0.5})", R"({"type": "string", "pattern": "^[!-~]{1,6}$"})",
        R"({"type": "string", "pattern": "^[^a\\n]{1,3}[\\n\\t]$"})",
        R"({"type": "string", "pattern": "^a+$|^\\w{2}\\s[^\\d]?$|^.b\\S$"})", R"({"type": "string", "pattern": "b"})",
        R"({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "boolean"}], "items": {"type": "null"}, "maxItems": 4})",
        R"({"type": "object", "required": ["z"], "additionalProperties": {"type": "integer", "maximum": 3}})",
        R"({"type": "object", "properties": {"é\"": {"type": "null"}, "a/b": {"type": "boolean"}}, "required": ["a/b", "é\""]})"));

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
      {R"({"type": "object", "properties": {"a/b": {"multipleOf": 3}}})", "#/properties/a~1b: 'multipleOf'"},
      {R"({"type": "number", "minimum": 1e300})", "minimum"},
      {R"({"type": "number", "minimum": 2, "exclusiveMaximum": 2})", "no number"},
      {R"({"type": "string", "enum": [1, 2]})", "no value"},
      {R"({"enum": ["a"], "minLength": 3})", "minLength"},
      {R"({"$ref": "#"})", "left-recursive"},
      {R"({"allOf": [{"$ref": "#"}]})", "nests deeper"},
      {R"({"$ref": "#/$defs/a", "minimum": 1, "$defs": {"a": {"$ref": "#/$defs/a", "maximum": 3}}})",
       "leads to itself"},
      {R"({"allOf": [{"type": "string"}, {"type": "integer"}]})", "no type fits"},
      {R"({"allOf": [{"pattern": "a"}, {"pattern": "b"}]})", "'pattern' is given twice"},
      {R"({"type": "object", "required": ["x"], "properties": {}, "additionalProperties": false})", "'x'"},
      {R"({"type": "string", "pattern": "a{5,2}"})", "wrong way round"},
      {R"({"type": "string", "pattern": "[z-a]"})", "not in order"},
      {R"~({"type": "string", "pattern": "(a"})~", "not closed"},
      {R"~({"type": "string", "pattern": "a)"})~", "not opened"},
      {R"({"type": "string", "pattern": "[\\q]"})", "escape"},
      {R"({"type": "array", "items": false, "minItems": 1})", "leave no list"},
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

// Whether the grammar allows exactly this text.
bool allows(const std::string& grammar, const std::string& text) {
  llama_sampler* sampler = llama_sampler_init_grammar(demo().vocabulary(), grammar.c_str(), "root");
  CHECK(sampler != nullptr);
  const auto allowed = [&](Token token) {
    llama_token_data one{token, 1.0F, 0.0F};
    llama_token_data_array single{&one, 1, -1, false};
    llama_sampler_apply(sampler, &single);
    return one.logit == 1.0F;
  };
  bool fits = true;
  const auto tokens = demo().tokenize(text, AddSpecial::no, ParseSpecial::no);
  for (const Token token : *tokens) {
    fits = fits && allowed(token);
    if (fits) llama_sampler_accept(sampler, token);
  }
  Token end = 0;
  while (!demo().ends_generation(end)) ++end;
  fits = fits && allowed(end);
  llama_sampler_free(sampler);
  return fits;
}

bool schema_allows(std::string_view schema, const std::string& text) {
  const auto grammar = json_schema_to_grammar(schema);
  EXPECT_TRUE(grammar) << schema << ": " << grammar.error().message;
  return grammar && allows(*grammar, text);
}

TEST(JsonSchema, NumbersBetweenBoundsAreExactlyThose) {
  EXPECT_TRUE(rc::check("a number is allowed when it lies between", [] {
    const int scale = *rc::gen::element(1, 10, 100);
    const int from = *rc::gen::inRange(-12 * scale, 12 * scale);
    const double low = from / double(scale);
    const double high = (from + *rc::gen::inRange(0, 15 * scale)) / double(scale);
    const bool exclusive_low = *rc::gen::arbitrary<bool>();
    const bool exclusive_high = *rc::gen::arbitrary<bool>();
    const std::string schema =
        fmt::format(R"({{"type": "number", "{}": {}, "{}": {}}})", exclusive_low ? "exclusiveMinimum" : "minimum", low,
                    exclusive_high ? "exclusiveMaximum" : "maximum", high);
    const auto grammar = json_schema_to_grammar(schema);
    if (!grammar) RC_ASSERT(low == high && (exclusive_low || exclusive_high));
    if (!grammar) return;
    for (int i = 0; i < 40; ++i) {
      const int decimals = *rc::gen::inRange(0, 4);
      const std::string text = fmt::format("{:.{}f}", *rc::gen::inRange(-28000, 28000) / 1000.0, decimals);
      const double value = std::stod(text);
      const bool inside =
          (exclusive_low ? value > low : value >= low) && (exclusive_high ? value < high : value <= high);
      RC_LOG() << schema << " " << text << "\n";
      // Zero has two signs, of which a grammar may leave one out.
      if (value != 0) RC_ASSERT(allows(*grammar, text) == inside);
      if (value == 0 && !inside) RC_ASSERT(!allows(*grammar, text));
    }
  }));
}

TEST(JsonSchema, NumbersBetweenNearBounds) {
  const char* schema = R"({"type": "number", "minimum": 5.5, "maximum": 5.55})";
  for (const char* inside : {"5.5", "5.50", "5.500", "5.51", "5.5499", "5.55", "5.550"})
    EXPECT_TRUE(schema_allows(schema, inside)) << inside;
  for (const char* outside : {"5", "5.", "5.4", "5.49", "5.56", "5.551", "5.6", "-5.5", "05.5", "55"})
    EXPECT_FALSE(schema_allows(schema, outside)) << outside;
  const char* strict = R"({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.05})";
  for (const char* inside : {"0.01", "0.001", "0.0499", "0.0001"}) EXPECT_TRUE(schema_allows(strict, inside)) << inside;
  for (const char* outside : {"0", "0.0", "0.00", "0.05", "0.1", "-0", "-0.01"})
    EXPECT_FALSE(schema_allows(strict, outside)) << outside;
}

TEST(JsonSchema, IntegersBetweenBoundsAreExactlyThose) {
  EXPECT_TRUE(rc::check("an integer is allowed when it lies between", [] {
    const auto low = *rc::gen::inRange<std::int64_t>(-12000, 12000);
    const auto high = low + *rc::gen::inRange<std::int64_t>(0, 9000);
    const std::string schema = fmt::format(R"({{"type": "integer", "minimum": {}, "maximum": {}}})", low, high);
    const auto grammar = json_schema_to_grammar(schema);
    RC_ASSERT(grammar.has_value());
    for (const std::int64_t value :
         {low, high, low - 1, high + 1, (low + high) / 2, *rc::gen::inRange<std::int64_t>(-20000, 20000)}) {
      RC_ASSERT(allows(*grammar, std::to_string(value)) == (low <= value && value <= high));
    }
    RC_ASSERT(!allows(*grammar, "0" + std::to_string(high)));
  }));
}

TEST(JsonSchema, ReferencesTakeWhatStandsBesideThem) {
  const char* schema =
      R"({"$ref": "#/$defs/n", "maximum": 9, "description": "d", "$defs": {"n": {"type": "integer", "minimum": 5}}})";
  EXPECT_TRUE(schema_allows(schema, "7"));
  EXPECT_FALSE(schema_allows(schema, "4"));
  EXPECT_FALSE(schema_allows(schema, "10"));
  const char* all =
      R"({"allOf": [{"$ref": "#/$defs/a"}, {"properties": {"x": {"maximum": 3}, "y": {"type": "null"}}, "required": ["y"]}],
                        "$defs": {"a": {"type": "object", "properties": {"x": {"type": "integer", "minimum": 1}}, "required": ["x"]}}})";
  EXPECT_TRUE(schema_allows(all, R"({"x":2,"y":null})"));
  EXPECT_FALSE(schema_allows(all, R"({"x":4,"y":null})"));
  EXPECT_FALSE(schema_allows(all, R"({"x":0,"y":null})"));
  EXPECT_FALSE(schema_allows(all, R"({"x":2})"));
  const char* any =
      R"({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]})";
  EXPECT_TRUE(schema_allows(any, R"({"a":1})"));
  EXPECT_TRUE(schema_allows(any, R"({"b":1})"));
  EXPECT_FALSE(schema_allows(any, "{}"));
}

TEST(JsonSchema, EnumsKeepToTheTypeAndNullableAddsNull) {
  EXPECT_FALSE(schema_allows(R"({"type": "string", "enum": ["a", 1]})", "1"));
  EXPECT_TRUE(schema_allows(R"({"type": "string", "enum": ["a", 1]})", "\"a\""));
  EXPECT_TRUE(schema_allows(R"({"type": "string", "enum": ["a"], "nullable": true})", "null"));
  EXPECT_TRUE(schema_allows(R"({"type": ["string", "null"], "maxLength": 2})", "null"));
  EXPECT_TRUE(schema_allows(R"({"type": ["string", "null"], "maxLength": 2})", "\"ab\""));
  EXPECT_FALSE(schema_allows(R"({"type": ["string", "null"], "maxLength": 2})", "\"abc\""));
}

TEST(JsonSchema, TextsHoldNoHalfSurrogates) {
  EXPECT_TRUE(schema_allows(R"({"type": "string"})", R"("\u00e9 \ud7ff \ue000")"));
  EXPECT_FALSE(schema_allows(R"({"type": "string"})", R"("\ud800")"));
  EXPECT_FALSE(schema_allows(R"({"type": "string"})", R"("\uDFff")"));
  EXPECT_FALSE(schema_allows(R"({"type": "string"})", "\"\xED\xA0\x80\""));
  EXPECT_TRUE(schema_allows(R"({"type": "string"})", "\"한국어 退款 😀\""));
}

TEST(JsonSchema, FormatsAreKept) {
  EXPECT_TRUE(schema_allows(R"({"type": "string", "format": "date"})", "\"2024-02-28\""));
  EXPECT_FALSE(schema_allows(R"({"type": "string", "format": "date"})", "\"2024-13-01\""));
  EXPECT_TRUE(schema_allows(R"({"type": "string", "format": "date-time"})", "\"2024-02-28T23:59:59.5+01:00\""));
  EXPECT_TRUE(schema_allows(R"({"type": "string", "format": "uuid"})", "\"01234567-89ab-cdef-0123-456789abcdef\""));
  EXPECT_FALSE(schema_allows(R"({"type": "string", "format": "uuid"})", "\"01234567\""));
}

TEST(JsonSchema, BlanksAreBounded) {
  EXPECT_TRUE(schema_allows(R"({"type": "object", "properties": {"a": {"type": "integer"}}})", "{\n  \"a\": 1\n}"));
  EXPECT_FALSE(schema_allows(R"({"type": "object", "properties": {"a": {"type": "integer"}}})", "{\n\n\n\"a\": 1}"));
}

TEST(JsonSchema, HostileSchemasAreAnsweredSoon) {
  std::string names = R"({"type":"object","additionalProperties":true,"properties":{)";
  for (int i = 0; i < 3000; ++i) names += fmt::format(R"("{}{}":{{}},)", std::string(20, 'a'), i);
  names += R"("z":{}}})";
  std::string chain = R"({"$ref":"#/$defs/0","$defs":{)";
  for (int i = 0; i < 3000; ++i) chain += fmt::format(R"("{}":{{"$ref":"#/$defs/{}"}},)", i, i + 1);
  chain += R"("3000":{}}})";
  std::string doubling = R"({"$ref":"#/$defs/0","$defs":{)";
  for (int i = 0; i < 60; ++i)
    doubling += fmt::format(R"("{0}":{{"anyOf":[{{"$ref":"#/$defs/{1}"}},{{"$ref":"#/$defs/{1}"}}]}},)", i, i + 1);
  doubling += R"("60":{"type":"null"}}})";
  std::string product = R"({"anyOf":[)";
  for (int i = 0; i < 300; ++i) product += fmt::format(R"({}{{"minLength":{}}})", i == 0 ? "" : ",", i);
  product += R"(],"oneOf":[)";
  for (int i = 0; i < 300; ++i) product += fmt::format(R"({}{{"maxLength":{}}})", i == 0 ? "" : ",", 1000 + i);
  product += "]}";
  const std::string long_name =
      R"({"type":"object","additionalProperties":true,"properties":{")" + std::string(100'000, 'a') + R"(":{}}})";
  const std::string nested = std::string(100'000, '[');
  for (const std::string& schema : {names, chain, doubling, product, long_name, nested}) {
    const auto begun = std::chrono::steady_clock::now();
    EXPECT_FALSE(json_schema_to_grammar(schema)) << schema.substr(0, 60);
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(3)) << schema.substr(0, 60);
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
