// Reads a GBNF grammar before libllama does, and refuses what libllama would choke on. Pure.
//
// libllama's parser prints a grammar that it refuses to stderr, never ends on `{5,2}` or on rules that name each other
// twice at their front, and does not see a left recursion behind a rule that may be empty, on which sampling then eats
// all memory. Grammars come from clients, so they pass here first.
#pragma once

#include <functional>
#include <string_view>

#include "base/result.h"

namespace caravan::engine {

// invalid_argument with the line where it does not parse, or the rule that is missing, left-recursive or too large.
// `is_one_token` says whether a text like "<|im_end|>" is one token of the vocabulary, for grammars that name tokens.
Status check_grammar(std::string_view grammar, const std::function<bool(std::string_view)>& is_one_token);

}  // namespace caravan::engine
