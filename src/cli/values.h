// Values as people type them: sizes, whole numbers, switches, durations, and the name that was probably meant.
// The errors here say what to give instead ("give a size such as 512M or 8G"); whoever asked puts the wrong value
// before.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"

namespace caravan::cli {

// "512M", "8G", "1.5G", "4096": bytes, multiples of 1024 (K, M, G, T, upper or lower case, "B" or "iB" may follow).
Result<std::uint64_t> parse_bytes(std::string_view text);
// The shortest text that parse_bytes reads back as the same number where there is one, else one decimal: "8G", "1.5G".
std::string format_bytes(std::uint64_t bytes);

Result<std::int64_t> parse_integer(std::string_view text, std::int64_t least, std::int64_t most);
// Plain decimal, finite.
Result<double> parse_number(std::string_view text, double least, double most);
// on, true, yes, 1 and off, false, no, 0.
Result<bool> parse_switch(std::string_view text);
// "500ms", "30s", "2m", "1h"; a number alone is seconds.
Result<Duration> parse_duration(std::string_view text);
std::string format_duration(Duration duration);

// Insertions, deletions, replacements and swaps of neighbours that turn one into the other.
std::size_t edit_distance(std::string_view left, std::string_view right);
// The candidate that `name` most likely stands for; none when nothing is close.
std::optional<std::string> nearest_name(std::string_view name, std::span<const std::string> candidates);

}  // namespace caravan::cli
