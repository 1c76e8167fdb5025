#include "engine/json_schema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include <boost/json.hpp>

#include "engine/grammar_check.h"
#include "engine/number_grammar.h"
#include "engine/regex_grammar.h"
#include "engine/schema_merge.h"
#include "engine/text_stream.h"

namespace caravan::engine {
namespace {

namespace json = boost::json;

constexpr std::size_t schema_bytes_max = std::size_t{128} << 10;
constexpr std::size_t rules_max = 4000;
constexpr int depth_max = 64;
constexpr std::size_t name_characters_max = 200;  // of properties beside which others are allowed
constexpr std::int64_t repeat_max = 2000;         // characters of a text, items of a list

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

// A GBNF literal for exactly this text.
std::string literal(std::string_view text) {
  std::string quoted = "\"";
  for (const char32_t each : characters(text)) quoted += grammar_escape(each);
  return quoted + "\"";
}

std::string repeat(std::int64_t least, std::optional<std::int64_t> most) {
  if (!most) return least == 0 ? "*" : fmt::format("{{{},}}", least);
  return fmt::format("{{{},{}}}", least, *most);
}

// A part of a JSON pointer.
std::string pointer_part(std::string_view name) {
  std::string part;
  for (const char each : name) part += each == '~' ? "~0" : each == '/' ? "~1" : std::string(1, each);
  return part;
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

class Converter {
 public:
  explicit Converter(const json::value& root) : root_(root) {}

  Result<std::string> convert() {
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

 private:
  static std::string group(const std::string& body) {
    return body.find(' ') == std::string::npos ? body : "(" + body + ")";
  }
  static bool mentions(std::string_view grammar, std::string_view name) {
    const auto part = [](char each) { return std::isalnum(static_cast<unsigned char>(each)) != 0 || each == '-'; };
    for (std::size_t at = grammar.find(name); at != std::string_view::npos; at = grammar.find(name, at + 1)) {
      const bool begins = at == 0 || (!part(grammar[at - 1]) && grammar[at - 1] != '"');
      const std::size_t end = at + name.size();
      if (begins && (end == grammar.size() || !part(grammar[end]))) return true;
    }
    return false;
  }

  template <class... Args>
  std::string wrong(const std::string& pointer, fmt::format_string<Args...> format, Args&&... args) {
    if (!error_) {
      error_ = Error{ErrorCode::invalid_argument,
                     fmt::format("JSON schema, {}: {}", pointer, fmt::format(format, std::forward<Args>(args)...))};
    }
    return "\"\"";
  }

  // A rule of its own for `body`; its name.
  std::string rule(std::string body) {
    if (rules_.size() > rules_max) return wrong("#", "the schema is too large");
    const std::string name = fmt::format("r{}", ++named_);
    rules_[name] = std::move(body);
    return name;
  }

  std::string visit(const json::value& schema, const std::string& pointer, int depth) {
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

  void refuse_unsupported(const json::object& object, const std::string& pointer) {
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

  // The schema that a $ref names; null after an error.
  const json::value* find(const json::value& reference, const std::string& pointer) {
    if (!reference.is_string() || !reference.get_string().starts_with("#")) {
      wrong(pointer, "$ref must begin with #; other documents are not fetched");
      return nullptr;
    }
    boost::system::error_code failed;
    const json::value* schema = root_.find_pointer(std::string_view(reference.get_string()).substr(1), failed);
    if (schema == nullptr) wrong(pointer, "$ref {} points to nothing", std::string_view(reference.get_string()));
    return schema;
  }

  // `schema` with its $ref, if it has one, put in its place.
  json::value resolved(const json::value& schema, const std::string& pointer, int depth) {
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

  json::value merged(const json::value& a, const json::value& b, const std::string& pointer) {
    auto both = merge_schemas(a, b);
    if (both) return std::move(*both);
    wrong(pointer, "{}", both.error().message);
    return a;
  }

  static bool only_annotations(const json::object& object) {
    return std::ranges::all_of(object, [](const auto& each) { return schema_annotation(each.key()); });
  }

  std::string visit_reference(const json::object& object, const std::string& pointer, int depth) {
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

  // The values of enum and const that fit the rest.
  std::string visit_values(const json::object& object, const std::string& pointer) {
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
      if (fits) body += (body.empty() ? "" : " | ") + literal(json::serialize(value));
    }
    return body.empty() ? wrong(pointer, "enum, const and type leave no value") : body;
  }

  static bool constraint(std::string_view name) {
    static constexpr std::array<std::string_view, 15> names = {"minimum",
                                                               "maximum",
                                                               "exclusiveMinimum",
                                                               "exclusiveMaximum",
                                                               "minLength",
                                                               "maxLength",
                                                               "pattern",
                                                               "properties",
                                                               "items",
                                                               "required",
                                                               "prefixItems",
                                                               "minItems",
                                                               "maxItems",
                                                               "additionalProperties",
                                                               "allOf"};
    return std::ranges::find(names, name) != names.end();
  }

  // oneOf is taken as anyOf: a grammar cannot say that the others do not hold.
  std::string visit_any(const json::object& object, const char* name, const std::string& pointer, int depth) {
    const json::value list = object.at(name);
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
      body += (body.empty() ? "" : " | ") +
              group(alone ? visit(each, at, depth + 1)
                          : visit(merged(beside, resolved(each, at, depth), at), at, depth + 1));
    }
    return body.empty() ? wrong(pointer, "{} leaves no value", name) : body;
  }

  std::string visit_all(const json::object& object, const std::string& pointer, int depth) {
    const json::value list = object.at("allOf");
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

  std::string visit_type(const json::object& object, const std::string& pointer, int depth) {
    const json::value* type = object.if_contains("type");
    if (type != nullptr && type->is_array()) {
      std::string body;
      for (const json::value& each : type->get_array()) {
        json::object one = object;
        one["type"] = each;
        body += (body.empty() ? "" : " | ") + group(visit(one, pointer, depth + 1));
      }
      return body.empty() ? wrong(pointer, "type is an empty list") : body;
    }
    const std::string name = type == nullptr     ? implied_type(object)
                             : type->is_string() ? std::string(type->get_string())
                                                 : "";
    if (type == nullptr && name.empty()) return "value";
    if (name == "object") return visit_object(object, pointer, depth);
    if (name == "array") return visit_array(object, pointer, depth);
    if (name == "string") return visit_string(object, pointer);
    if (name == "integer") return visit_integer(object, pointer);
    if (name == "number") return visit_number(object, pointer);
    if (name == "boolean" || name == "null") return name;
    return wrong(pointer, "type {} is unknown", json::serialize(*type));
  }

  // Without a type the keywords tell it: what they speak of is what is meant.
  static std::string implied_type(const json::object& object) {
    const auto any = [&](std::initializer_list<const char*> names) {
      return std::ranges::any_of(names, [&](const char* name) { return object.contains(name); });
    };
    if (any({"properties", "required", "additionalProperties"})) return "object";
    if (any({"items", "prefixItems", "minItems", "maxItems"})) return "array";
    if (any({"pattern", "minLength", "maxLength"})) return "string";
    if (any({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})) return "number";
    return "";
  }

  std::optional<std::int64_t> count_of(const json::object& object, const char* name, const std::string& pointer) {
    const json::value* value = object.if_contains(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_number() || value->to_number<double>() < 0 || value->to_number<double>() > 1e9) {
      wrong(pointer, "'{}' must be a count", name);
      return std::nullopt;
    }
    return static_cast<std::int64_t>(value->to_number<double>());
  }

  // Bounds of a repetition, lowered to what a grammar can hold.
  std::pair<std::int64_t, std::optional<std::int64_t>> counts_of(const json::object& object, const char* least_name,
                                                                 const char* most_name, const std::string& pointer) {
    const std::int64_t least = count_of(object, least_name, pointer).value_or(0);
    std::optional<std::int64_t> most = count_of(object, most_name, pointer);
    if (least > repeat_max) wrong(pointer, "'{}' is more than {}", least_name, repeat_max);
    if (most && *most < least) wrong(pointer, "'{}' is less than '{}'", most_name, least_name);
    if (most) most = std::min(*most, repeat_max);
    return {least, most};
  }

  std::string visit_string(const json::object& object, const std::string& pointer) {
    const auto [least, most] = counts_of(object, "minLength", "maxLength", pointer);
    if (const json::value* pattern = object.if_contains("pattern")) {
      if (!pattern->is_string()) return wrong(pointer, "pattern must be text");
      if (least > 0 || most) {
        return wrong(pointer, "pattern with minLength or maxLength is not offered; say it in the pattern");
      }
      auto body = regex_to_grammar(std::string_view(pattern->get_string()), "char");
      if (!body) return wrong(pointer + "/pattern", "{}", body.error().message);
      return rule("\"\\\"\" " + *body + " \"\\\"\"");
    }
    if (const json::value* format = object.if_contains("format"); format != nullptr && format->is_string()) {
      const std::string_view name = format->get_string();
      if (name == "date" || name == "time" || name == "uuid") return "\"\\\"\" " + std::string(name) + " \"\\\"\"";
      if (name == "date-time") return R"("\"" date "T" time "\"")";
    }
    if (least == 0 && !most) return "string";
    return "\"\\\"\" char" + repeat(least, most) + " \"\\\"\"";
  }

  // The tighter of a bound and its exclusive form.
  std::optional<NumberBound> bound_of(const json::object& object, const char* name, const char* exclusive, int sign,
                                      const std::string& pointer) {
    std::optional<NumberBound> bound;
    for (const bool strict : {false, true}) {
      const char* key = strict ? exclusive : name;
      const json::value* value = object.if_contains(key);
      if (value == nullptr) continue;
      if (!value->is_number() || std::abs(value->to_number<double>()) > 1e15) {
        wrong(pointer, "'{}' must be a number of at most 1e15", key);
        return std::nullopt;
      }
      const double number = value->to_number<double>();
      if (!bound || sign * number > sign * bound->value || (strict && number == bound->value)) bound = {number, strict};
    }
    return bound;
  }

  std::string visit_integer(const json::object& object, const std::string& pointer) {
    const auto whole = [](const std::optional<NumberBound>& bound, int sign) -> std::optional<std::int64_t> {
      if (!bound) return std::nullopt;
      const double inside = sign > 0 ? std::ceil(bound->value) : std::floor(bound->value);
      return static_cast<std::int64_t>(inside) + (bound->exclusive && inside == bound->value ? sign : 0);
    };
    const auto low = whole(bound_of(object, "minimum", "exclusiveMinimum", 1, pointer), 1);
    const auto high = whole(bound_of(object, "maximum", "exclusiveMaximum", -1, pointer), -1);
    if (!low && !high) return "integer";
    if (low && high && *low > *high) return wrong(pointer, "no integer is between {} and {}", *low, *high);
    return rule(integer_range_grammar(low, high));
  }

  std::string visit_number(const json::object& object, const std::string& pointer) {
    const auto low = bound_of(object, "minimum", "exclusiveMinimum", 1, pointer);
    const auto high = bound_of(object, "maximum", "exclusiveMaximum", -1, pointer);
    if (!low && !high) return "number";
    const auto body = number_range_grammar(low, high);
    return body ? rule(*body) : wrong(pointer, "{}", body.error().message);
  }

  std::string visit_array(const json::object& object, const std::string& pointer, int depth) {
    auto [least, most] = counts_of(object, "minItems", "maxItems", pointer);
    const json::value* items = object.if_contains("items");
    const json::value* prefix = object.if_contains("prefixItems");
    if (prefix == nullptr && items != nullptr && items->is_array())
      std::swap(items, prefix);  // as drafts before 2020 had it
    if (prefix != nullptr && !prefix->is_array()) return wrong(pointer, "prefixItems must be a list of schemas");
    if (items != nullptr && *items == json::value(false)) {
      const auto size = prefix == nullptr ? 0 : static_cast<std::int64_t>(prefix->get_array().size());
      most = std::min(most.value_or(size), size);
      if (*most < least) return wrong(pointer, "items, prefixItems and minItems leave no list");
    }
    // The items of the prefix are always written, as far as maxItems lets them.
    std::string body;
    std::int64_t written = 0;
    for (; prefix != nullptr && written < static_cast<std::int64_t>(prefix->get_array().size()); ++written) {
      if (most && written == *most) break;
      const std::string at = fmt::format("{}/prefixItems/{}", pointer, written);
      const std::string item = visit(prefix->get_array()[static_cast<std::size_t>(written)], at, depth + 1);
      body += (written == 0 ? "" : " ws \",\" ws ") + group(item);
    }
    least = std::max<std::int64_t>(least - written, 0);
    if (most) *most -= written;
    // Behind a prefix, and without a word about items, nothing more is written than must be.
    if (written > 0 && items == nullptr) most = least;
    if (most && *most == 0) return rule("\"[\" ws " + (body.empty() ? "" : body + " ws ") + "\"]\"");
    const std::string item = rule(items == nullptr ? "value" : visit(*items, pointer + "/items", depth + 1));
    if (written > 0) {
      return rule("\"[\" ws " + body + " (ws \",\" ws " + item + ")" + repeat(least, most) + " ws \"]\"");
    }
    if (most) --*most;
    const std::string list = item + " (ws \",\" ws " + item + ")" + repeat(std::max<std::int64_t>(least - 1, 0), most);
    return rule("\"[\" ws " + (least == 0 ? "(" + list + ")?" : list) + " ws \"]\"");
  }

  // Any text but these, as the characters of a JSON string: what may name an additional property.
  std::string other_names(const std::vector<std::vector<char32_t>>& names, std::size_t at) {
    std::map<char32_t, std::vector<std::vector<char32_t>>> by_first;
    bool taken = false;  // one of them ends here
    for (const auto& name : names) {
      if (name.size() == at) {
        taken = true;
      } else {
        by_first[name[at]].push_back(name);
      }
    }
    std::string excluded;
    std::string body;
    for (const auto& [first, those] : by_first) {
      excluded += grammar_escape(first);
      body += fmt::format("\"{}\" {} | ", grammar_escape(first), group(other_names(those, at + 1)));
    }
    body += fmt::format("[^{}\\x22\\x5C\\x00-\\x1F\\x7F] char*", excluded);
    return rule(taken ? body : "\"\" | " + body);
  }

  std::string visit_object(const json::object& object, const std::string& pointer, int depth) {
    const json::value* properties = object.if_contains("properties");
    const json::value* additional = object.if_contains("additionalProperties");
    if (properties != nullptr && !properties->is_object()) return wrong(pointer, "properties must be an object");
    std::set<std::string, std::less<>> required;
    if (const json::value* list = object.if_contains("required")) {
      if (!list->is_array()) return wrong(pointer, "required must be a list of names");
      for (const json::value& name : list->get_array()) {
        if (!name.is_string()) return wrong(pointer, "required must be a list of names");
        required.insert(std::string(name.get_string()));
      }
    }
    // Without a word about others, an object has the properties that are described and no more.
    const bool closed = additional == nullptr ? properties != nullptr : *additional == json::value(false);
    const auto other_value = [&] {
      if (additional == nullptr || additional->is_bool()) return std::string("value");
      return group(visit(*additional, pointer + "/additionalProperties", depth + 1));
    };
    struct Member {
      std::string rule;
      bool required = false;
    };
    std::vector<Member> members;
    std::vector<std::vector<char32_t>> names;
    const auto add = [&](std::string_view name, const std::string& value, bool is_required) {
      members.push_back({rule(literal(json::serialize(json::value(name))) + " ws \":\" ws " + value), is_required});
    };
    for (const auto& [name, schema] : properties == nullptr ? json::object{} : properties->get_object()) {
      const bool is_required = required.erase(std::string(name)) > 0;
      names.push_back(characters(name));
      if (schema == json::value(false) && !is_required) continue;
      const std::string at = fmt::format("{}/properties/{}", pointer, pointer_part(name));
      add(name, group(visit(schema, at, depth + 1)), is_required);
    }
    // Required, and described nowhere else.
    for (const std::string& name : required) {
      if (closed && additional != nullptr) return wrong(pointer, "it requires '{}' and does not allow it", name);
      names.push_back(characters(name));
      add(name, other_value(), true);
    }
    std::string rest = "\"\"";
    std::string first = "\"\"";
    if (!closed) {
      for (const auto& name : names) {
        if (name.size() > name_characters_max)
          return wrong(pointer, "a property's name has more than {} characters", name_characters_max);
      }
      const std::string key = names.empty() ? "string" : "\"\\\"\" " + other_names(names, 0) + " \"\\\"\"";
      const std::string member = rule(key + " ws \":\" ws " + other_value());
      rest = "(ws \",\" ws " + member + ")*";
      first = "(" + member + " " + rest + ")?";
    }
    // From the last member to the first: what may follow when something came before (rest), and when nothing did
    // (first).
    for (auto member = members.rbegin(); member != members.rend(); ++member) {
      const std::string rest_rule = rule(rest);
      const std::string first_rule = rule(first);
      const std::string with = member->rule + " " + rest_rule;
      rest = member->required ? "ws \",\" ws " + with : "(ws \",\" ws " + member->rule + ")? " + rest_rule;
      first = member->required ? with : with + " | " + first_rule;
    }
    return rule("\"{\" ws " + group(first) + " ws \"}\"");
  }

  const json::value& root_;
  std::map<std::string, std::string> rules_;
  std::map<std::string, std::string> references_;
  std::optional<Error> error_;
  int named_ = 0;
};

}  // namespace

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
  return Converter(schema).convert();
}

std::string json_object_grammar() { return json_schema_to_grammar(R"({"type": "object"})").value(); }

}  // namespace caravan::engine
