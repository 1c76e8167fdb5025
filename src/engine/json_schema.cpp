#include "engine/json_schema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include <boost/json.hpp>

#include "engine/regex_grammar.h"
#include "engine/text_stream.h"

namespace caravan::engine {
namespace {

namespace json = boost::json;

constexpr std::size_t schema_bytes_max = std::size_t{128} << 10;
constexpr std::size_t rules_max = 4000;
constexpr int depth_max = 64;
constexpr std::int64_t repeat_max = 2000;  // characters of a text, items of a list
constexpr int integer_digits_max = 16;

// Rules that stand for themselves; those that a grammar uses are put into it.
const std::map<std::string, std::string, std::less<>>& primitives() {
  static const std::map<std::string, std::string, std::less<>> rules = {
      {"ws", R"(| " " | "\n" [ \t]{0,20})"},
      {"char", R"([^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt/] | "u" [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F] [0-9a-fA-F]))"},
      {"string", R"("\"" char* "\"")"},
      {"integer", R"("-"? ("0" | [1-9] [0-9]{0,15}))"},
      {"number", R"("-"? ("0" | [1-9] [0-9]{0,15}) ("." [0-9]{1,16})? ([eE] [-+]? [1-9] [0-9]{0,1})?)"},
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

// Decimal numbers of one length between two of that length, digit by digit.
std::string same_length_range(const std::string& low, const std::string& high) {
  const auto digits = [](char from, char to) {
    return from == to ? fmt::format("\"{}\"", from) : fmt::format("[{}-{}]", from, to);
  };
  if (low.empty()) return "\"\"";
  if (low.size() == 1) return digits(low[0], high[0]);
  const std::string low_rest = low.substr(1);
  const std::string high_rest = high.substr(1);
  if (low[0] == high[0]) return digits(low[0], low[0]) + " (" + same_length_range(low_rest, high_rest) + ")";
  const std::string nines(low_rest.size(), '9');
  const std::string zeros(low_rest.size(), '0');
  std::string all = digits(low[0], low[0]) + " (" + same_length_range(low_rest, nines) + ")";
  if (low[0] + 1 < high[0]) {
    all += " | " + digits(static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1)) +
           fmt::format(" [0-9]{{{}}}", low_rest.size());
  }
  return all + " | " + digits(high[0], high[0]) + " (" + same_length_range(zeros, high_rest) + ")";
}

std::string positive_range(std::int64_t low, std::int64_t high) {
  std::string all;
  for (std::int64_t begin = low; begin <= high;) {
    const std::string first = std::to_string(begin);
    const auto end = static_cast<std::int64_t>(std::pow(10, first.size())) - 1;
    const std::int64_t last = std::min(end, high);
    all += (all.empty() ? "" : " | ") + same_length_range(first, std::to_string(last));
    begin = last + 1;
  }
  return all;
}

std::string integer_range(std::optional<std::int64_t> low, std::optional<std::int64_t> high) {
  const auto limit = static_cast<std::int64_t>(std::pow(10, integer_digits_max)) - 1;
  const std::int64_t from = std::clamp(low.value_or(-limit), -limit, limit);
  const std::int64_t to = std::clamp(high.value_or(limit), -limit, limit);
  std::string all;
  if (from < 0)
    all = "\"-\" (" + positive_range(std::max<std::int64_t>(1, -std::min<std::int64_t>(to, -1)), -from) + ")";
  if (to >= 0) all += (all.empty() ? "" : " | ") + positive_range(std::max<std::int64_t>(0, from), to);
  return all;
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
    if (const json::value* reference = object->if_contains("$ref")) return visit_reference(*reference, pointer);
    if (const json::value* value = object->if_contains("const")) return literal(json::serialize(*value));
    if (const json::value* values = object->if_contains("enum")) return visit_enum(*values, pointer);
    for (const char* name : {"anyOf", "oneOf"}) {
      if (const json::value* list = object->if_contains(name))
        return visit_any(*object, *list, pointer + "/" + name, depth);
    }
    if (const json::value* list = object->if_contains("allOf")) return visit_all(*object, *list, pointer, depth);
    std::string body = visit_type(*object, pointer, depth);
    const json::value* nullable = object->if_contains("nullable");
    if (nullable != nullptr && *nullable == true) body = group(body) + " | null";
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
                                         "dependentRequired",
                                         "dependentSchemas",
                                         "dependencies",
                                         "multipleOf",
                                         "minProperties",
                                         "maxProperties",
                                         "unevaluatedProperties",
                                         "unevaluatedItems",
                                         "minContains",
                                         "maxContains",
                                         "$dynamicRef"};
    for (const char* name : names) {
      if (object.contains(name)) wrong(pointer, "'{}' is not offered", name);
    }
    const json::value* unique = object.if_contains("uniqueItems");
    if (unique != nullptr && *unique == true) wrong(pointer, "'uniqueItems' is not offered");
  }

  std::string visit_reference(const json::value& reference, const std::string& pointer) {
    if (!reference.is_string() || !reference.get_string().starts_with("#")) {
      return wrong(pointer, "$ref must begin with #; other documents are not fetched");
    }
    const std::string target(reference.get_string());
    if (const auto known = references_.find(target); known != references_.end()) return known->second;
    boost::system::error_code failed;
    const json::value* schema = root_.find_pointer(target.substr(1), failed);
    if (schema == nullptr) return wrong(pointer, "$ref {} points to nothing", target);
    const std::string name = rule("");
    references_[target] = name;  // before the visit: a schema may refer to itself
    std::string body = visit(*schema, target, 0);
    rules_[name] = std::move(body);
    return name;
  }

  std::string visit_enum(const json::value& values, const std::string& pointer) {
    if (!values.is_array() || values.get_array().empty()) return wrong(pointer, "enum must be a list of values");
    std::string body;
    for (const json::value& value : values.get_array())
      body += (body.empty() ? "" : " | ") + literal(json::serialize(value));
    return body;
  }

  std::string visit_any(const json::object& object, const json::value& list, const std::string& pointer, int depth) {
    if (!list.is_array() || list.get_array().empty()) return wrong(pointer, "it must be a list of schemas");
    // What stands beside it holds for each.
    json::object beside = object;
    beside.erase("anyOf");
    beside.erase("oneOf");
    std::string body;
    for (std::size_t i = 0; i < list.get_array().size(); ++i) {
      const std::string at = fmt::format("{}/{}", pointer, i);
      const json::value merged = merge(beside, list.get_array()[i], at);
      body += (body.empty() ? "" : " | ") + group(visit(merged, at, depth + 1));
    }
    return body;
  }

  std::string visit_all(const json::object& object, const json::value& list, const std::string& pointer, int depth) {
    if (!list.is_array()) return wrong(pointer, "allOf must be a list of schemas");
    json::object merged = object;
    merged.erase("allOf");
    for (const json::value& each : list.get_array()) {
      const json::value* part = &each;
      if (const json::object* inner = each.if_object(); inner != nullptr && inner->contains("$ref")) {
        boost::system::error_code failed;
        const json::value& reference = inner->at("$ref");
        part = reference.is_string() && reference.get_string().starts_with("#")
                   ? root_.find_pointer(std::string(reference.get_string()).substr(1), failed)
                   : nullptr;
        if (part == nullptr) return wrong(pointer, "a $ref in allOf points to nothing");
      }
      json::value next = merge(merged, *part, pointer);
      if (!next.is_object()) return wrong(pointer, "allOf of these cannot be merged");
      merged = std::move(next.get_object());
    }
    return visit(merged, pointer, depth + 1);
  }

  // Both schemas at once, where they speak of different things; properties and required are united.
  json::value merge(const json::object& a, const json::value& b, const std::string& pointer) {
    if (b.is_bool() && b.get_bool()) return a;
    if (!b.is_object()) return b;
    json::object merged = a;
    for (const auto& [key, value] : b.get_object()) {
      json::value* present = merged.if_contains(key);
      if (present == nullptr || *present == value) {
        merged[key] = value;
      } else if (key == "properties" && present->is_object() && value.is_object()) {
        for (const auto& [name, property] : value.get_object()) present->get_object()[name] = property;
      } else if (key == "required" && present->is_array() && value.is_array()) {
        for (const json::value& name : value.get_array()) present->get_array().push_back(name);
      } else if (key == "title" || key == "description" || key == "default" || key == "examples" || key == "$defs") {
        continue;
      } else {
        wrong(pointer, "'{}' is given twice, with different values", std::string_view(key));
      }
    }
    // A reference cannot stand beside other keywords here.
    if (merged.contains("$ref") && merged.size() > 1) {
      json::object only{{"$ref", merged["$ref"]}};
      for (const auto& [key, value] : merged) {
        static constexpr std::array harmless = {"$ref",    "title", "description", "default", "examples",
                                                "$schema", "$defs", "definitions", "$id"};
        if (std::ranges::find(harmless, std::string_view(key)) == harmless.end()) {
          wrong(pointer, "$ref beside '{}' is not offered", std::string_view(key));
        }
      }
      return only;
    }
    return merged;
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
    std::string name;
    if (type == nullptr) {
      name = object.contains("properties") || object.contains("required") || object.contains("additionalProperties")
                 ? "object"
             : object.contains("items") || object.contains("prefixItems")                                 ? "array"
             : object.contains("pattern") || object.contains("minLength") || object.contains("maxLength") ? "string"
             : object.contains("minimum") || object.contains("maximum")                                   ? "number"
                                                                                                          : "";
      if (name.empty()) return "value";
    } else if (type->is_string()) {
      name = std::string(type->get_string());
    }
    if (name == "object") return visit_object(object, pointer, depth);
    if (name == "array") return visit_array(object, pointer, depth);
    if (name == "string") return visit_string(object, pointer);
    if (name == "integer") return visit_integer(object, pointer);
    if (name == "number") {
      for (const char* bound : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) {
        if (object.contains(bound))
          return wrong(pointer, "'{}' of a number is not offered; of an integer it is", bound);
      }
      return "number";
    }
    if (name == "boolean" || name == "null") return name;
    return wrong(pointer, "type {} is unknown", type == nullptr ? "?" : json::serialize(*type));
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
      if (least > 0 || most)
        return wrong(pointer, "pattern with minLength or maxLength is not offered; say it in the pattern");
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

  std::string visit_integer(const json::object& object, const std::string& pointer) {
    const auto bound = [&](const char* name, const char* exclusive, int step) -> std::optional<std::int64_t> {
      for (const bool strict : {false, true}) {
        const json::value* value = object.if_contains(strict ? exclusive : name);
        if (value == nullptr) continue;
        if (!value->is_number() || std::abs(value->to_number<double>()) > 1e15) {
          wrong(pointer, "'{}' must be a number below 1e15", strict ? exclusive : name);
          return std::nullopt;
        }
        const double number = value->to_number<double>();
        const double whole = step > 0 ? std::ceil(number) : std::floor(number);
        return static_cast<std::int64_t>(whole) + (strict && whole == number ? step : 0);
      }
      return std::nullopt;
    };
    const auto low = bound("minimum", "exclusiveMinimum", 1);
    const auto high = bound("maximum", "exclusiveMaximum", -1);
    if (!low && !high) return "integer";
    if (low && high && *low > *high) return wrong(pointer, "no integer is between {} and {}", *low, *high);
    return rule(integer_range(low, high));
  }

  std::string visit_array(const json::object& object, const std::string& pointer, int depth) {
    const auto [least, most] = counts_of(object, "minItems", "maxItems", pointer);
    const json::value* prefix = object.if_contains("prefixItems");
    const json::value* items = object.if_contains("items");
    if (prefix != nullptr) {
      if (!prefix->is_array()) return wrong(pointer, "prefixItems must be a list of schemas");
      std::string body;
      for (std::size_t i = 0; i < prefix->get_array().size(); ++i) {
        const std::string at = fmt::format("{}/prefixItems/{}", pointer, i);
        body += (i == 0 ? "" : " ws \",\" ws ") + group(visit(prefix->get_array()[i], at, depth + 1));
      }
      const auto size = static_cast<std::int64_t>(prefix->get_array().size());
      if (least > size || (most && *most < size)) return wrong(pointer, "minItems or maxItems do not fit prefixItems");
      return rule("\"[\" ws " + body + " ws \"]\"");
    }
    const std::string item = rule(items == nullptr ? "value" : visit(*items, pointer + "/items", depth + 1));
    if (most && *most == 0) return "\"[\" ws \"]\"";
    const std::string more = most ? repeat(std::max<std::int64_t>(least - 1, 0), *most - 1)
                                  : repeat(std::max<std::int64_t>(least - 1, 0), {});
    const std::string list = item + " (ws \",\" ws " + item + ")" + more;
    return rule("\"[\" ws " + (least == 0 ? "(" + list + ")?" : list) + " ws \"]\"");
  }

  // Any text but these, as the characters of a JSON string: what may name an additional property.
  std::string other_names(const std::vector<std::vector<char32_t>>& names, std::size_t at) {
    std::map<char32_t, std::vector<std::vector<char32_t>>> by_first;
    bool taken = false;  // one of them ends here
    for (const auto& name : names) {
      if (name.size() == at)
        taken = true;
      else
        by_first[name[at]].push_back(name);
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
    if (const json::value* list = object.if_contains("required"); list != nullptr && list->is_array()) {
      for (const json::value& name : list->get_array()) {
        if (name.is_string()) required.insert(std::string(name.get_string()));
      }
    }
    struct Member {
      std::string rule;
      bool required = false;
    };
    std::vector<Member> members;
    std::vector<std::vector<char32_t>> names;
    if (properties != nullptr) {
      for (const auto& [name, schema] : properties->get_object()) {
        const std::string at = fmt::format("{}/properties/{}", pointer, std::string_view(name));
        const std::string value = group(visit(schema, at, depth + 1));
        members.push_back({rule(literal(json::serialize(json::value(name))) + " ws \":\" ws " + value),
                           required.erase(std::string(name)) > 0});
        names.push_back(characters(name));
      }
    }
    // Required, and described nowhere else.
    for (const std::string& name : required) {
      members.push_back({rule(literal(json::serialize(json::value(name))) + " ws \":\" ws value"), true});
      names.push_back(characters(name));
    }
    const bool free = additional == nullptr ? members.empty() : !(additional->is_bool() && !additional->get_bool());
    std::string rest = "\"\"";
    std::string first = "\"\"";
    if (free) {
      const std::string value = additional == nullptr || additional->is_bool()
                                    ? "value"
                                    : group(visit(*additional, pointer + "/additionalProperties", depth + 1));
      const std::string key = names.empty() ? "string" : "\"\\\"\" " + other_names(names, 0) + " \"\\\"\"";
      const std::string member = rule(key + " ws \":\" ws " + value);
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
