#include "engine/number_grammar.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

namespace caravan::engine {
namespace {

constexpr std::int64_t integer_max = 9'999'999'999'999'999;  // number_digits_max digits
constexpr double bound_max = 1e15;
constexpr int decimals_max = 10;

// Further digits behind a fraction's first, and behind those that a bound has fixed.
constexpr const char* more_digits = " [0-9]{0,14}";
constexpr const char* more_zeros = " \"0\"{0,6}";
constexpr const char* more_than_zero = " \"0\"{0,6} [1-9] [0-9]{0,6}";
constexpr const char* any_fraction = " (\".\" [0-9]{1,15})?";

std::string digits(char from, char to) {
  return from == to ? fmt::format("\"{}\"", from) : fmt::format("[{}-{}]", from, to);
}

void add(std::string& all, const std::string& alternative) { all += (all.empty() ? "" : " | ") + alternative; }

// Digits between two texts of the same length.
std::string same_length_range(const std::string& low, const std::string& high) {
  if (low.empty()) return "\"\"";
  if (low.size() == 1) return digits(low[0], high[0]);
  if (low.find_first_not_of('0') == std::string::npos && high.find_first_not_of('9') == std::string::npos) {
    return fmt::format("[0-9]{{{}}}", low.size());
  }
  const std::string low_rest = low.substr(1);
  const std::string high_rest = high.substr(1);
  if (low[0] == high[0]) return digits(low[0], low[0]) + " (" + same_length_range(low_rest, high_rest) + ")";
  const std::string nines(low_rest.size(), '9');
  const std::string zeros(low_rest.size(), '0');
  std::string all = digits(low[0], low[0]) + " (" + same_length_range(low_rest, nines) + ")";
  if (low[0] + 1 < high[0]) {
    add(all, digits(static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1)) +
                 fmt::format(" [0-9]{{{}}}", low_rest.size()));
  }
  add(all, digits(high[0], high[0]) + " (" + same_length_range(zeros, high_rest) + ")");
  return all;
}

std::string positive_range(std::int64_t low, std::int64_t high) {
  std::string all;
  for (std::int64_t begin = low; begin <= high;) {
    const std::string first = std::to_string(begin);
    std::int64_t last = 9;  // the largest with as many digits
    while (last < begin) last = last * 10 + 9;
    last = std::min(last, high);
    add(all, same_length_range(first, std::to_string(last)));
    begin = last + 1;
  }
  return all;
}

// A bound of a number that is not negative, as written: no zeros at the fraction's end.
struct Decimal {
  std::int64_t whole = 0;
  std::string fraction;
  bool exclusive = false;
};

std::optional<Decimal> decimal(double value, bool exclusive) {
  if (!(value >= 0) || value > bound_max) return std::nullopt;
  std::string text = fmt::format("{:.{}f}", value, decimals_max);
  if (std::strtod(text.c_str(), nullptr) != value) return std::nullopt;
  text.erase(text.find_last_not_of('0') + 1);
  const std::size_t point = text.find('.');
  return Decimal{.whole = std::strtoll(text.substr(0, point).c_str(), nullptr, 10),
                 .fraction = text.substr(point + 1),
                 .exclusive = exclusive};
}

// Digits behind the point that are at least `bound`; it has at least one digit and does not end in 0.
std::string fraction_at_least(std::string_view bound, bool exclusive) {
  std::string all;
  if (bound[0] < '9') add(all, digits(static_cast<char>(bound[0] + 1), '9') + more_digits);
  const std::string same = digits(bound[0], bound[0]);
  if (bound.size() > 1) {
    add(all, same + " (" + fraction_at_least(bound.substr(1), exclusive) + ")");
  } else {
    add(all, same + (exclusive ? more_than_zero : more_digits));
  }
  return all;
}

std::string fraction_at_most(std::string_view bound, bool exclusive) {
  std::string all;
  if (bound[0] > '0') add(all, digits('0', static_cast<char>(bound[0] - 1)) + more_digits);
  const std::string same = digits(bound[0], bound[0]);
  if (bound.size() > 1) {
    add(all, same + " (" + fraction_at_most(bound.substr(1), exclusive) + ")?");
  } else if (!exclusive) {
    add(all, same + more_zeros);
  }
  return all;
}

// What may follow digits that a lower, or an upper, bound begins with; `rest` is what else the bound has.
std::string tail_at_least(std::string_view rest, bool exclusive) {
  if (rest.empty()) return exclusive ? more_than_zero : more_digits;
  return " (" + fraction_at_least(rest, exclusive) + ")";
}
std::optional<std::string> tail_at_most(std::string_view rest, bool exclusive) {
  if (!rest.empty()) return " (" + fraction_at_most(rest, exclusive) + ")?";
  return exclusive ? std::nullopt : std::optional<std::string>(more_zeros);
}

// Digits behind the point between two bounds, the first of which is smaller, or excluded if it has no digits.
std::string fraction_between(std::string_view low, bool low_exclusive, std::string_view high, bool high_exclusive) {
  const char from = low.empty() ? '0' : low[0];
  const std::string_view low_rest = low.empty() ? low : low.substr(1);
  const std::string same = digits(from, from);
  if (from == high[0] && low.size() == 1 && !low_exclusive) return same + *tail_at_most(high.substr(1), high_exclusive);
  if (from == high[0])
    return same + " (" + fraction_between(low_rest, low_exclusive, high.substr(1), high_exclusive) + ")";
  std::string all = same + tail_at_least(low_rest, low_exclusive);
  if (from + 1 < high[0]) add(all, digits(static_cast<char>(from + 1), static_cast<char>(high[0] - 1)) + more_digits);
  if (const auto tail = tail_at_most(high.substr(1), high_exclusive)) add(all, digits(high[0], high[0]) + *tail);
  return all;
}

// Both bounds have the same whole part.
std::string same_whole(const Decimal& low, const Decimal& high) {
  const std::string whole = fmt::format("\"{}\"", low.whole);
  if (low.fraction > high.fraction) return {};
  if (low.fraction == high.fraction) {
    if (low.exclusive || high.exclusive) return {};
    if (low.fraction.empty()) return whole + " (\".\" \"0\"{1,6})?";
    return whole + " \"." + low.fraction + "\"" + more_zeros;
  }
  if (low.fraction.empty() && !low.exclusive) {
    return whole + " (\".\" (" + fraction_at_most(high.fraction, high.exclusive) + "))?";
  }
  return whole + " \".\" (" + fraction_between(low.fraction, low.exclusive, high.fraction, high.exclusive) + ")";
}

// Numbers that are not negative between two such; empty if there are none.
std::string between(const Decimal& low, const Decimal& high) {
  if (low.whole > high.whole) return {};
  if (low.whole == high.whole) return same_whole(low, high);
  const auto whole = [](std::int64_t value) { return fmt::format("\"{}\"", value); };
  std::string all;
  if (!low.fraction.empty()) {
    add(all, whole(low.whole) + " \".\" (" + fraction_at_least(low.fraction, low.exclusive) + ")");
  } else if (low.exclusive) {
    add(all, whole(low.whole) + " \".\"" + more_than_zero);
  } else {
    add(all, whole(low.whole) + any_fraction);
  }
  if (low.whole + 1 < high.whole) add(all, "(" + positive_range(low.whole + 1, high.whole - 1) + ")" + any_fraction);
  if (!high.fraction.empty()) {
    add(all, whole(high.whole) + " (\".\" (" + fraction_at_most(high.fraction, high.exclusive) + "))?");
  } else if (!high.exclusive) {
    add(all, whole(high.whole) + " (\".\" \"0\"{1,6})?");
  }
  return all;
}

}  // namespace

std::string integer_range_grammar(std::optional<std::int64_t> low, std::optional<std::int64_t> high) {
  const std::int64_t from = std::clamp(low.value_or(-integer_max), -integer_max, integer_max);
  const std::int64_t to = std::clamp(high.value_or(integer_max), -integer_max, integer_max);
  std::string all;
  if (from < 0) {
    add(all, "\"-\" (" + positive_range(std::max<std::int64_t>(1, -std::min<std::int64_t>(to, -1)), -from) + ")");
  }
  if (to >= 0) add(all, positive_range(std::max<std::int64_t>(0, from), to));
  return all;
}

Result<std::string> number_range_grammar(std::optional<NumberBound> low, std::optional<NumberBound> high) {
  const Decimal none{.whole = integer_max};
  const Decimal zero;
  // The bound nearer to zero and the one farther from it, on one side of zero.
  const auto side = [&](const std::optional<NumberBound>& near, const std::optional<NumberBound>& far,
                        double sign) -> Result<std::string> {
    const bool beyond = near && near->value * sign >= 0;  // else all from zero on
    const auto first = beyond ? decimal(near->value * sign, near->exclusive) : zero;
    const auto last = far ? decimal(far->value * sign, far->exclusive) : none;
    if (!first || !last) {
      return fail(ErrorCode::invalid_argument, "a bound must be at most 1e15 in size with at most {} decimals",
                  decimals_max);
    }
    return between(*first, *last);
  };
  std::string all;
  if (!low || low->value < 0) {
    const auto negative = side(high, low, -1);
    if (!negative) return negative;
    if (!negative->empty()) add(all, "\"-\" (" + *negative + ")");
  }
  if (!high || high->value >= 0) {
    const auto positive = side(low, high, 1);
    if (!positive) return positive;
    if (!positive->empty()) add(all, *positive);
  }
  if (all.empty()) return fail(ErrorCode::invalid_argument, "no number lies between the bounds");
  return all;
}

}  // namespace caravan::engine
