#include "engine/json_schema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "engine/grammar_check.h"
#include "engine/regex_grammar.h"
#include "engine/schema_converter.h"
#include "engine/schema_merge.h"
#include "engine/text_stream.h"

namespace caravan::engine {
namespace {

namespace json = boost::json;

constexpr std::size_t schema_bytes_max = std::size_t{128} << 10;
constexpr std::size_t rules_max = 4000;
constexpr int depth_max = 64;

// Rules that stand for themselves; those that a grammar uses are put into it.
const std::map<std::string, std::string, std::less<>>& primitives() {
  static const std::map<std::string, std::string, std::less<>> rules = {
      {"ws", R"(| " " | "\n" [ \t]{0,20})"},
      // No surrogates, neither raw nor escaped: half of a pair is no text.
      {"char",
       R"([\x20-\x21\x23-\x5B\x5D-\x7E\u0080-\uD7FF\uE000-\U0010FFFF] | "\\" (["\\bfnrt/] | "u" ([0-9a-cA-CefEF] [0-9a-fA-F] | [dD] [0-7]) [0-9a-fA-F]{2}))"},
      {"string", R"("\"" char* "\"")"},
      {"integer", R"("-"? ("0" | [1-9] [0-9]{0,15}))"},
      {"number", R"("-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]{1,15})? ([eE] [-+]? [1-9] [0-9]{0,1})?)"},
      {"boolean", R"("true" | "false")"},
      {"null", R"("null")"},
      {"member", R"(string ws ":" ws value)"},
      {"object", R"("{" ws (member (ws "," ws member)*)? ws "}")"},
      {"array", R"("[" ws (value (ws "," ws value)*)? ws "]")"},
      {"value", R"(object | array | string | number | boolean | null)"},
      {"date", R"([0-9] [0-9] [0-9] [0-9] "-" ("0" [1-9] | "1" [0-2]) "-" ("0" [1-9] | "1" [0-9] | "2" [0-8]))"},
      {"time",
       R"(("0" [0-9] | "1" [0-9] | "2" [0-3]) ":" [0-5] [0-9] ":" [0-5] [0-9] ("." [0-9]{1,3})? ("Z" | [-+] ("0" [0-9] | "1" [0-9] | "2" [0-3]) ":" [0-5] [0-9]))"},
      {"uuid", R"([0-9a-fA-F]{8} "-" [0-9a-fA-F]{4} "-" [0-9a-fA-F]{4} "-" [0-9a-fA-F]{4} "-" [0-9a-fA-F]{12})"},
  };
  return rules;
}

bool matches_type(const json::value& value, std::string_view type) {
  if (type == "string") return value.is_string();
  if (type == "number") return value.is_number();
  if (type == "integer") {
    return value.is_int64() || value.is_uint64() ||
           (value.is_double() && std::trunc(value.get_double()) == value.get_double());
  }
  if (type == "boolean") return value.is_bool();
  if (type == "null") return value.is_null();
  if (type == "object") return value.is_object();
  return type == "array" && value.is_array();
}

}  // namespace

std::vector<char32_t> characters(std::string_view text) {
  std::vector<char32_t> list;
  while (!text.empty()) {
    const std::size_t length = std::max<std::size_t>(1, utf8_step(text).length);
    char32_t value = static_cast<unsigned char>(text[0]);
    if (length > 1) value &= 0xFFU >> (length + 1);
    for (std::size_t i = 1; i < length; ++i) value = value << 6 | (static_cast<unsigned char>(text[i]) & 0x3F);
    list.push_back(value);
    text.remove_prefix(length);
  }
  return list;
}

std::string grammar_literal(std::string_view text) {
  std::string quoted = "\"";
  for (const char32_t each : characters(text)) quoted += grammar_escape(each);
  return quoted + "\"";
}

Result<std::string> SchemaConverter::convert() {
  const std::string body = visit(root_, "#", 0);
  if (error_) return std::unexpected(*error_);
  rules_["root"] = group(body);
  std::string grammar;
  std::set<std::string, std::less<>> used;
  for (const auto& [name, text] : rules_) grammar += fmt::format("{} ::= {}\n", name, text);
  // Primitives refer to each other; take them in until nothing new is named.
  for (bool more = true; more;) {
    more = false;
    for (const auto& [name, text] : primitives()) {
      if (used.contains(name) || !mentions(grammar, name)) continue;
      used.insert(name);
      grammar += fmt::format("{} ::= {}\n", name, text);
      more = true;
    }
  }
  // What is left to go wrong is a $ref that leads to itself, or sheer size.
  if (const Status status = check_grammar(grammar, [](std::string_view) { return false; }); !status) {
    return fail(ErrorCode::invalid_argument, "JSON schema: it makes no usable grammar: {}", status.error().message);
  }
  return grammar;
}

bool SchemaConverter::mentions(std::string_view grammar, std::string_view name) {
  const auto part = [](char each) { return std::isalnum(static_cast<unsigned char>(each)) != 0 || each == '-'; };
  for (std::size_t at = grammar.find(name); at != std::string_view::npos; at = grammar.find(name, at + 1)) {
    const bool begins = at == 0 || (!part(grammar[at - 1]) && grammar[at - 1] != '"');
    const std::size_t end = at + name.size();
    if (begins && (end == grammar.size() || !part(grammar[end]))) return true;
  }
  return false;
}

std::string SchemaConverter::rule(std::string body) {
  if (rules_.size() > rules_max) return wrong("#", "the schema is too large");
  const std::string name = fmt::format("r{}", ++named_);
  rules_[name] = std::move(body);
  return name;
}

std::string SchemaConverter::visit(const json::value& schema, const std::string& pointer, int depth) {
  if (error_) return "\"\"";
  if (depth > depth_max) return wrong(pointer, "it nests deeper than {}", depth_max);
  if (schema.is_bool()) return schema.get_bool() ? "value" : wrong(pointer, "false allows nothing");
  const json::object* object = schema.if_object();
  if (object == nullptr) return wrong(pointer, "a schema must be an object or true");
  refuse_unsupported(*object, pointer);
  if (object->contains("$ref")) return visit_reference(*object, pointer, depth);
  for (const char* name : {"anyOf", "oneOf"}) {
    if (object->contains(name)) return visit_any(*object, name, pointer, depth);
  }
  if (object->contains("allOf")) return visit_all(*object, pointer, depth);
  std::string body = object->contains("const") || object->contains("enum") ? visit_values(*object, pointer)
                                                                           : visit_type(*object, pointer, depth);
  const json::value* nullable = object->if_contains("nullable");
  if (nullable != nullptr && *nullable == json::value(true)) body = group(body) + " | null";
  return body;
}

void SchemaConverter::refuse_unsupported(const json::object& object, const std::string& pointer) {
  static constexpr std::array names = {"not",
                                       "if",
                                       "then",
                                       "else",
                                       "patternProperties",
                                       "propertyNames",
                                       "contains",
                                       "dependencies",
                                       "multipleOf",
                                       "minProperties",
                                       "unevaluatedProperties",
                                       "additionalItems",
                                       "dependentSchemas",
                                       "minContains",
                                       "maxContains",
                                       "maxProperties",
                                       "unevaluatedItems",
                                       "dependentRequired",
                                       "$dynamicRef",
                                       "$recursiveRef"};
  for (const char* name : names) {
    if (object.contains(name)) wrong(pointer, "'{}' is not offered", name);
  }
  const json::value* unique = object.if_contains("uniqueItems");
  if (unique != nullptr && *unique == json::value(true)) wrong(pointer, "'uniqueItems' is not offered");
}

const json::value* SchemaConverter::find(const json::value& reference, const std::string& pointer) {
  if (!reference.is_string() || !reference.get_string().starts_with("#")) {
    wrong(pointer, "$ref must begin with #; other documents are not fetched");
    return nullptr;
  }
  boost::system::error_code failed;
  const json::value* schema = root_.find_pointer(std::string_view(reference.get_string()).substr(1), failed);
  if (schema == nullptr) wrong(pointer, "$ref {} points to nothing", std::string_view(reference.get_string()));
  return schema;
}

json::value SchemaConverter::resolved(const json::value& schema, const std::string& pointer, int depth) {
  const json::object* object = schema.if_object();
  if (error_ || object == nullptr || !object->contains("$ref")) return schema;
  if (depth > depth_max) {
    wrong(pointer, "its $ref leads to itself");
    return schema;
  }
  const json::value* target = find(object->at("$ref"), pointer);
  if (target == nullptr) return schema;
  json::object beside = *object;
  beside.erase("$ref");
  return merged(beside, resolved(*target, pointer, depth + 1), pointer);
}

json::value SchemaConverter::merged(const json::value& a, const json::value& b, const std::string& pointer) {
  auto both = merge_schemas(a, b);
  if (both) return std::move(*both);
  wrong(pointer, "{}", both.error().message);
  return a;
}

bool SchemaConverter::only_annotations(const json::object& object) {
  return std::ranges::all_of(object, [](const auto& each) { return schema_annotation(each.key()); });
}

std::string SchemaConverter::visit_reference(const json::object& object, const std::string& pointer, int depth) {
  json::object beside = object;
  beside.erase("$ref");
  if (!only_annotations(beside)) return visit(resolved(object, pointer, depth), pointer, depth + 1);
  const json::value* schema = find(object.at("$ref"), pointer);
  if (schema == nullptr) return "\"\"";
  const std::string target(object.at("$ref").get_string());
  if (const auto known = references_.find(target); known != references_.end()) return known->second;
  const std::string name = rule("");
  references_[target] = name;  // before the visit: a schema may refer to itself
  std::string body = visit(*schema, target, depth + 1);
  rules_[name] = std::move(body);
  return name;
}

std::string SchemaConverter::visit_values(const json::object& object, const std::string& pointer) {
  json::array values;
  const json::value* list = object.if_contains("enum");
  const json::value* constant = object.if_contains("const");
  if (list != nullptr && !list->is_array()) return wrong(pointer, "enum must be a list of values");
  if (list == nullptr) {
    values.push_back(*constant);
  } else {
    for (const json::value& value : list->get_array()) {
      if (constant == nullptr || value == *constant) values.push_back(value);
    }
  }
  std::string body;
  for (const auto& [key, unused] : object) {
    const std::string_view name = key;
    if (name == "enum" || name == "const" || name == "type" || name == "nullable" || name == "format") continue;
    if (constraint(name)) return wrong(pointer, "'{}' beside enum or const is not offered", name);
  }
  for (const json::value& value : values) {
    const json::value* type = object.if_contains("type");
    const json::array types = type == nullptr    ? json::array{}
                              : type->is_array() ? type->get_array()
                                                 : json::array{*type};
    const bool fits = type == nullptr || std::ranges::any_of(types, [&](const json::value& each) {
                        return each.is_string() && matches_type(value, each.get_string());
                      });
    if (fits) body += (body.empty() ? "" : " | ") + grammar_literal(json::serialize(value));
  }
  return body.empty() ? wrong(pointer, "enum, const and type leave no value") : body;
}

bool SchemaConverter::constraint(std::string_view name) {
  static constexpr std::array<std::string_view, 15> names = {
      "minimum",    "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "pattern",
      "properties", "items",   "required",         "prefixItems",      "minItems",  "maxItems",  "additionalProperties",
      "allOf"};
  return std::ranges::find(names, name) != names.end();
}

std::string SchemaConverter::visit_any(const json::object& object, const char* name, const std::string& pointer,
                                       int depth) {
  const json::value& list = object.at(name);
  if (!list.is_array() || list.get_array().empty()) return wrong(pointer, "{} must be a list of schemas", name);
  // What stands beside it holds for each.
  json::object beside = object;
  for (const char* erased : {name, "$defs", "definitions"}) beside.erase(erased);
  std::string body;
  for (std::size_t i = 0; i < list.get_array().size() && !error_; ++i) {
    const std::string at = fmt::format("{}/{}/{}", pointer, name, i);
    const json::value& each = list.get_array()[i];
    if (each == json::value(false)) continue;
    const bool alone = only_annotations(beside);
    body +=
        (body.empty() ? "" : " | ") +
        group(alone ? visit(each, at, depth + 1) : visit(merged(beside, resolved(each, at, depth), at), at, depth + 1));
  }
  return body.empty() ? wrong(pointer, "{} leaves no value", name) : body;
}

std::string SchemaConverter::visit_all(const json::object& object, const std::string& pointer, int depth) {
  const json::value& list = object.at("allOf");
  if (!list.is_array()) return wrong(pointer, "allOf must be a list of schemas");
  json::object beside = object;
  beside.erase("allOf");
  json::value all = std::move(beside);
  for (std::size_t i = 0; i < list.get_array().size() && !error_; ++i) {
    const std::string at = fmt::format("{}/allOf/{}", pointer, i);
    all = merged(all, resolved(list.get_array()[i], at, depth), at);
  }
  return visit(all, pointer, depth + 1);
}

Result<std::string> json_schema_to_grammar(std::string_view schema_json) {
  if (schema_json.size() > schema_bytes_max) {
    return fail(ErrorCode::invalid_argument, "the JSON schema has {} bytes; at most {}", schema_json.size(),
                schema_bytes_max);
  }
  json::parse_options options;
  options.max_depth = 2 * depth_max;
  boost::system::error_code error;
  const json::value schema = json::parse(schema_json, error, {}, options);
  if (error) return fail(ErrorCode::invalid_argument, "the JSON schema is no valid JSON: {}", error.message());
  return SchemaConverter(schema).convert();
}

std::string json_object_grammar() { return json_schema_to_grammar(R"({"type": "object"})").value(); }

}  // namespace caravan::engine
