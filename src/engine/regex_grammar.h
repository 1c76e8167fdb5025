// A regular expression as the body of a GBNF rule over the characters of a JSON string. Pure.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace caravan::engine {

// Literals, ., classes, \d \w \s and their complements, groups, | and the quantifiers ? * + {m,n}; ^ and $ at the ends.
// Errors name what is not offered (look-around, references back, ...). `any` is the rule for one character of a string.
Result<std::string> regex_to_grammar(std::string_view pattern, std::string_view any);

// One character as it stands inside a GBNF literal ("...") or class ([...]).
std::string grammar_escape(char32_t character);

}  // namespace caravan::engine
