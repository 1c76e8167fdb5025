#include "engine/schema_merge.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>

#include <boost/json.hpp>

namespace caravan::engine {
namespace {

namespace json = boost::json;

using std::string_view;

bool one_of(string_view name, std::initializer_list<string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

bool holds(const json::array& list, const json::value& value) { return std::ranges::find(list, value) != list.end(); }

// The types that both allow; an integer is a number too.
Result<json::value> merge_types(const json::value& a, const json::value& b) {
  const auto list = [](const json::value& types) { return types.is_array() ? types.get_array() : json::array{types}; };
  json::array both;
  for (const json::value& each : list(a)) {
    for (const json::value& other : list(b)) {
      json::value shared;
      if (each == other || (each == "integer" && other == "number")) shared = each;
      if (each == "number" && other == "integer") shared = other;
      if (!shared.is_null() && !holds(both, shared)) both.push_back(shared);
    }
  }
  if (both.empty())
    return fail(ErrorCode::invalid_argument, "no type fits both {} and {}", json::serialize(a), json::serialize(b));
  return both.size() == 1 ? both[0] : json::value(both);
}

Result<json::value> merge_enums(const json::value& a, const json::value& b) {
  if (!a.is_array() || !b.is_array()) return fail(ErrorCode::invalid_argument, "enum must be a list of values");
  json::array both;
  for (const json::value& each : a.get_array()) {
    if (holds(b.get_array(), each)) both.push_back(each);
  }
  return both;
}

// What the schema says about a property, whether it names it or not.
json::value property_of(const json::object& schema, string_view name) {
  const json::value* properties = schema.if_contains("properties");
  if (properties != nullptr && properties->is_object()) {
    if (const json::value* property = properties->get_object().if_contains(name)) return *property;
  }
  const json::value* additional = schema.if_contains("additionalProperties");
  return additional == nullptr ? json::value(true) : *additional;
}

Result<json::value> merge_properties(const json::object& a, const json::object& b) {
  json::object both;
  for (const json::object* schema : {&a, &b}) {
    const json::value* properties = schema->if_contains("properties");
    if (properties == nullptr) continue;
    if (!properties->is_object()) return fail(ErrorCode::invalid_argument, "properties must be an object");
    for (const auto& [name, property] : properties->get_object()) {
      if (both.contains(name)) continue;
      auto merged = merge_schemas(property_of(a, name), property_of(b, name));
      if (!merged) return merged;
      if (*merged == json::value(false)) continue;  // one of them closes its objects to it
      both[name] = std::move(*merged);
    }
  }
  return both;
}

Result<json::value> merge_keyword(string_view key, const json::value& a, const json::value& b) {
  if (a == b || schema_annotation(key)) return a;
  if (key == "type") return merge_types(a, b);
  if (key == "enum") return merge_enums(a, b);
  if (one_of(key, {"items", "additionalProperties"})) return merge_schemas(a, b);
  if (key == "required" && a.is_array() && b.is_array()) {
    json::array both = a.get_array();
    for (const json::value& name : b.get_array()) {
      if (!holds(both, name)) both.push_back(name);
    }
    return both;
  }
  const bool numbers = a.is_number() && b.is_number();
  if (numbers && one_of(key, {"minimum", "exclusiveMinimum", "minLength", "minItems"})) {
    return a.to_number<double>() >= b.to_number<double>() ? a : b;
  }
  if (numbers && one_of(key, {"maximum", "exclusiveMaximum", "maxLength", "maxItems"})) {
    return a.to_number<double>() <= b.to_number<double>() ? a : b;
  }
  return fail(ErrorCode::invalid_argument, "'{}' is given twice, with different values", key);
}

}  // namespace

bool schema_annotation(string_view keyword) {
  return one_of(keyword, {"title", "description", "default", "examples", "example", "$schema", "$id", "$comment",
                          "$defs", "definitions", "deprecated", "readOnly", "writeOnly", "$anchor"});
}

Result<json::value> merge_schemas(const json::value& a, const json::value& b) {
  if (a == json::value(true) || b == json::value(false)) return b;
  if (b == json::value(true) || a == json::value(false)) return a;
  if (!a.is_object() || !b.is_object())
    return fail(ErrorCode::invalid_argument, "a schema must be an object, true or false");
  json::object both = a.get_object();
  for (const auto& [key, value] : b.get_object()) {
    const json::value* present = both.if_contains(key);
    if (present == nullptr) {
      both[key] = value;
      continue;
    }
    if (key == "properties") continue;  // below
    auto merged = merge_keyword(key, *present, value);
    if (!merged) return merged;
    both[key] = std::move(*merged);
  }
  if (both.contains("properties")) {
    auto properties = merge_properties(a.get_object(), b.get_object());
    if (!properties) return properties;
    both["properties"] = std::move(*properties);
  }
  return both;
}

}  // namespace caravan::engine
