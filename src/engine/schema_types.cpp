#include <algorithm>
#include <cmath>
#include <set>

#include "engine/regex_grammar.h"
#include "engine/schema_converter.h"

namespace caravan::engine {
namespace {

namespace json = boost::json;

constexpr std::size_t name_characters_max = 200;  // of properties beside which others are allowed
constexpr std::int64_t repeat_max = 2000;         // characters of a text, items of a list

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

}  // namespace

std::string SchemaConverter::visit_type(const json::object& object, const std::string& pointer, int depth) {
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

std::string SchemaConverter::implied_type(const json::object& object) {
  const auto any = [&](std::initializer_list<const char*> names) {
    return std::ranges::any_of(names, [&](const char* name) { return object.contains(name); });
  };
  if (any({"properties", "required", "additionalProperties"})) return "object";
  if (any({"items", "prefixItems", "minItems", "maxItems"})) return "array";
  if (any({"pattern", "minLength", "maxLength"})) return "string";
  if (any({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})) return "number";
  return "";
}

std::optional<std::int64_t> SchemaConverter::count_of(const json::object& object, const char* name,
                                                      const std::string& pointer) {
  const json::value* value = object.if_contains(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number() || value->to_number<double>() < 0 || value->to_number<double>() > 1e9) {
    wrong(pointer, "'{}' must be a count", name);
    return std::nullopt;
  }
  return static_cast<std::int64_t>(value->to_number<double>());
}

std::pair<std::int64_t, std::optional<std::int64_t>> SchemaConverter::counts_of(const json::object& object,
                                                                                const char* least_name,
                                                                                const char* most_name,
                                                                                const std::string& pointer) {
  const std::int64_t least = count_of(object, least_name, pointer).value_or(0);
  std::optional<std::int64_t> most = count_of(object, most_name, pointer);
  if (least > repeat_max) wrong(pointer, "'{}' is more than {}", least_name, repeat_max);
  if (most && *most < least) wrong(pointer, "'{}' is less than '{}'", most_name, least_name);
  if (most) most = std::min(*most, repeat_max);
  return {least, most};
}

std::string SchemaConverter::visit_string(const json::object& object, const std::string& pointer) {
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

std::optional<NumberBound> SchemaConverter::bound_of(const json::object& object, const char* name,
                                                     const char* exclusive, int sign, const std::string& pointer) {
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

std::string SchemaConverter::visit_integer(const json::object& object, const std::string& pointer) {
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

std::string SchemaConverter::visit_number(const json::object& object, const std::string& pointer) {
  const auto low = bound_of(object, "minimum", "exclusiveMinimum", 1, pointer);
  const auto high = bound_of(object, "maximum", "exclusiveMaximum", -1, pointer);
  if (!low && !high) return "number";
  const auto body = number_range_grammar(low, high);
  return body ? rule(*body) : wrong(pointer, "{}", body.error().message);
}

std::string SchemaConverter::visit_array(const json::object& object, const std::string& pointer, int depth) {
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

std::string SchemaConverter::other_names(const std::vector<std::vector<char32_t>>& names, std::size_t at) {
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

std::string SchemaConverter::visit_object(const json::object& object, const std::string& pointer, int depth) {
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
    members.push_back(
        {rule(grammar_literal(json::serialize(json::value(name))) + " ws \":\" ws " + value), is_required});
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

}  // namespace caravan::engine
