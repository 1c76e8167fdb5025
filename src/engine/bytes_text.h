// Bytes as people read them: "512 bytes", "24.0 KiB", "1.5 GiB".
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include <fmt/format.h>

namespace caravan::engine {

inline std::string bytes_text(std::uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  constexpr std::array units = {"KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes) / 1024;
  std::size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, units[unit]);
}

}  // namespace caravan::engine
