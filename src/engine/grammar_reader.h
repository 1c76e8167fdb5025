// Reads GBNF as libllama does, and keeps what grammar_check.cpp needs to judge it. Pure.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace caravan::engine {

using RuleId = std::size_t;
constexpr RuleId terminal = std::numeric_limits<RuleId>::max();

// For each alternative the rules and characters in order; a character is `terminal`. Groups and repetitions become
// rules, as they do in libllama.
struct GrammarRule {
  std::string name;
  std::vector<std::vector<RuleId>> alternatives;
  bool defined = false;
};

// `grammar` must be UTF-8. Errors: invalid_argument with the line.
Result<std::vector<GrammarRule>> read_grammar(std::string_view grammar,
                                              const std::function<bool(std::string_view)>& is_one_token);

}  // namespace caravan::engine
