// Decimal numbers between bounds, as the body of a GBNF rule. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"

namespace caravan::engine {

// Numbers get at most this many digits before the point, so that a model cannot write digits for ever.
constexpr int number_digits_max = 16;

struct NumberBound {
  double value = 0;
  bool exclusive = false;
};

// Both are below 10^number_digits_max in size; low <= high.
std::string integer_range_grammar(std::optional<std::int64_t> low, std::optional<std::int64_t> high);

// Numbers without exponent. Errors: invalid_argument when nothing lies between, or a bound is larger than 1e15 or has
// more than ten decimals.
Result<std::string> number_range_grammar(std::optional<NumberBound> low, std::optional<NumberBound> high);

}  // namespace caravan::engine
