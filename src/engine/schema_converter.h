// Walks a JSON schema and writes the rules of its grammar. For json_schema.cpp, which says what comes out; what belongs
// to one type of value (texts, numbers, lists, objects) is in schema_types.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "base/result.h"
#include "engine/number_grammar.h"

namespace caravan::engine {

// A text's characters; it must be UTF-8.
std::vector<char32_t> characters(std::string_view text);
// A GBNF literal for exactly this text.
std::string grammar_literal(std::string_view text);

// Each visit gives the body of a rule and notes the first thing that is wrong.
class SchemaConverter {
 public:
  explicit SchemaConverter(const boost::json::value& root) : root_(root) {}

  Result<std::string> convert();

 private:
  static std::string group(const std::string& body) {
    return body.find(' ') == std::string::npos ? body : "(" + body + ")";
  }
  static bool mentions(std::string_view grammar, std::string_view name);

  template <class... Args>
  std::string wrong(const std::string& pointer, fmt::format_string<Args...> format, Args&&... args) {
    if (!error_) {
      error_ = Error{ErrorCode::invalid_argument,
                     fmt::format("JSON schema, {}: {}", pointer, fmt::format(format, std::forward<Args>(args)...))};
    }
    return "\"\"";
  }

  // A rule of its own for `body`; its name.
  std::string rule(std::string body);
  std::string visit(const boost::json::value& schema, const std::string& pointer, int depth);
  void refuse_unsupported(const boost::json::object& object, const std::string& pointer);
  // The schema that a $ref names; null after an error.
  const boost::json::value* find(const boost::json::value& reference, const std::string& pointer);
  // `schema` with its $ref, if it has one, put in its place.
  boost::json::value resolved(const boost::json::value& schema, const std::string& pointer, int depth);
  boost::json::value merged(const boost::json::value& a, const boost::json::value& b, const std::string& pointer);
  static bool only_annotations(const boost::json::object& object);
  std::string visit_reference(const boost::json::object& object, const std::string& pointer, int depth);
  // The values of enum and const that fit the rest.
  std::string visit_values(const boost::json::object& object, const std::string& pointer);
  static bool constraint(std::string_view name);
  // oneOf is taken as anyOf: a grammar cannot say that the others do not hold.
  std::string visit_any(const boost::json::object& object, const char* name, const std::string& pointer, int depth);
  std::string visit_all(const boost::json::object& object, const std::string& pointer, int depth);
  std::string visit_type(const boost::json::object& object, const std::string& pointer, int depth);
  // Without a type the keywords tell it: what they speak of is what is meant.
  static std::string implied_type(const boost::json::object& object);
  std::optional<std::int64_t> count_of(const boost::json::object& object, const char* name, const std::string& pointer);
  // Bounds of a repetition, lowered to what a grammar can hold.
  std::pair<std::int64_t, std::optional<std::int64_t>> counts_of(const boost::json::object& object,
                                                                 const char* least_name, const char* most_name,
                                                                 const std::string& pointer);
  std::string visit_string(const boost::json::object& object, const std::string& pointer);
  // The tighter of a bound and its exclusive form.
  std::optional<NumberBound> bound_of(const boost::json::object& object, const char* name, const char* exclusive,
                                      int sign, const std::string& pointer);
  std::string visit_integer(const boost::json::object& object, const std::string& pointer);
  std::string visit_number(const boost::json::object& object, const std::string& pointer);
  std::string visit_array(const boost::json::object& object, const std::string& pointer, int depth);
  // Any text but these, as the characters of a JSON string: what may name an additional property.
  std::string other_names(const std::vector<std::vector<char32_t>>& names, std::size_t at);
  std::string visit_object(const boost::json::object& object, const std::string& pointer, int depth);

  const boost::json::value& root_;
  std::map<std::string, std::string> rules_;
  std::map<std::string, std::string> references_;  // $ref -> the rule that is its target
  std::optional<Error> error_;
  int named_ = 0;
};

}  // namespace caravan::engine
