#include "cli/values.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace caravan::cli {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

// A decimal number at the front and what follows it.
std::optional<std::pair<double, std::string_view>> number_and_rest(std::string_view text) {
  if (text.empty() || (text[0] != '.' && (text[0] < '0' || text[0] > '9'))) return std::nullopt;
  double value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (problem != std::errc()) return std::nullopt;
  return std::pair(value, text.substr(end - text.data()));
}

std::string shortest(double value) {
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text;
}

}  // namespace

Result<std::uint64_t> parse_bytes(std::string_view text) {
  const auto wrong = [] { return fail(ErrorCode::invalid_argument, "give a size such as 512M or 8G"); };
  const auto parsed = number_and_rest(text);
  if (!parsed) return wrong();
  std::string unit = lower(parsed->second);
  for (const std::string_view tail : {"ib", "b"}) {
    if (unit.ends_with(tail)) {
      unit.resize(unit.size() - tail.size());
      break;
    }
  }
  constexpr std::string_view units = "kmgt";
  double bytes = parsed->first;
  if (!unit.empty()) {
    const auto at = units.find(unit);
    if (unit.size() != 1 || at == std::string_view::npos) return wrong();
    bytes = std::ldexp(bytes, static_cast<int>(10 * (at + 1)));
  }
  if (!(bytes < std::ldexp(1.0, 53)) || bytes != std::floor(bytes)) return wrong();
  return static_cast<std::uint64_t>(bytes);
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array units{'T', 'G', 'M', 'K'};
  for (std::size_t i = 0; i < units.size(); ++i) {
    const std::uint64_t unit = std::uint64_t{1} << (10 * (units.size() - i));
    if (bytes >= unit) return shortest(static_cast<double>(bytes) / static_cast<double>(unit)) + units[i];
  }
  return std::to_string(bytes);
}

Result<std::int64_t> parse_integer(std::string_view text, std::int64_t least, std::int64_t most) {
  std::int64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc() || end != text.data() + text.size() || value < least || value > most) {
    if (most == std::numeric_limits<std::int64_t>::max()) {
      return fail(ErrorCode::invalid_argument, "give a whole number of at least {}", least);
    }
    return fail(ErrorCode::invalid_argument, "give a whole number from {} to {}", least, most);
  }
  return value;
}

Result<double> parse_number(std::string_view text, double least, double most) {
  const auto parsed = number_and_rest(text);
  if (!parsed || !parsed->second.empty() || parsed->first < least || parsed->first > most) {
    return fail(ErrorCode::invalid_argument, "give a number from {} to {}", least, most);
  }
  return parsed->first;
}

Result<bool> parse_switch(std::string_view text) {
  const std::string word = lower(text);
  if (word == "on" || word == "true" || word == "yes" || word == "1") return true;
  if (word == "off" || word == "false" || word == "no" || word == "0") return false;
  return fail(ErrorCode::invalid_argument, "give on or off");
}

Result<Duration> parse_duration(std::string_view text) {
  const auto wrong = [] { return fail(ErrorCode::invalid_argument, "give a duration such as 500ms, 30s or 2m"); };
  const auto parsed = number_and_rest(text);
  if (!parsed) return wrong();
  const std::string_view unit = parsed->second;
  double scale = 0;
  if (unit.empty() || unit == "s") scale = 1;
  if (unit == "ms") scale = 1e-3;
  if (unit == "m") scale = 60;
  if (unit == "h") scale = 3600;
  const double length = parsed->first * scale;
  constexpr double longest = 365.0 * 24 * 3600;
  if (scale == 0 || length > longest) return wrong();
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(length));
}

std::string format_duration(Duration duration) {
  const double length = seconds(duration);
  if (length != 0 && length < 1) return shortest(length * 1e3) + "ms";
  return shortest(length) + "s";
}

std::size_t edit_distance(std::string_view left, std::string_view right) {
  // Three rows of the usual table: a swap of neighbours looks two rows back.
  std::vector<std::size_t> before(right.size() + 1);
  std::vector<std::size_t> last(right.size() + 1);
  std::vector<std::size_t> now(right.size() + 1);
  for (std::size_t j = 0; j <= right.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= left.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= right.size(); ++j) {
      const std::size_t changed = left[i - 1] == right[j - 1] ? 0 : 1;
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + changed});
      if (i > 1 && j > 1 && left[i - 1] == right[j - 2] && left[i - 2] == right[j - 1]) {
        now[j] = std::min(now[j], before[j - 2] + 1);
      }
    }
    before.swap(last);
    last.swap(now);
  }
  return last[right.size()];
}

std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> candidates) {
  // Half of a name may be wrong at the most; a name that begins with what was typed is closer than its length says.
  std::optional<std::string> nearest;
  std::size_t best = std::max<std::size_t>(1, std::min<std::size_t>(name.size() / 2, 4)) + 1;
  for (const auto& candidate : candidates) {
    std::size_t distance = edit_distance(name, candidate);
    if (name.size() >= 2 && candidate.starts_with(name)) distance = std::min<std::size_t>(distance, 1);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace caravan::cli
