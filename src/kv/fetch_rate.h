// What fetching from a tier costs, as measured, and whether it is worth it. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/clock.h"

namespace caravan::kv {

class FetchRate {
 public:
  void note(std::uint64_t bytes, double seconds, TimePoint now) {
    if (bytes == 0) return;
    const double each = seconds / static_cast<double>(bytes);
    // A tier that has become slow is believed at once, one that has become fast again after a few fetches.
    seconds_per_byte_ = !seconds_per_byte_ ? each : std::max(0.8 * *seconds_per_byte_ + 0.2 * each, 0.5 * each);
    next_trial_ = now + trial_interval;
  }
  // None before the first fetch.
  [[nodiscard]] std::optional<double> seconds(std::uint64_t bytes) const {
    if (!seconds_per_byte_) return std::nullopt;
    return *seconds_per_byte_ * static_cast<double>(bytes);
  }

  // Whether to fetch so many bytes rather than spend `compute_seconds` (0: not known yet, then anything is cheaper).
  // A tier that is too slow is tried all the same from time to time, or it would be called slow for ever.
  [[nodiscard]] bool worth(std::uint64_t bytes, double compute_seconds, TimePoint now) {
    const auto expected = seconds(bytes);
    if (!expected || compute_seconds <= 0 || *expected < share_of_compute * compute_seconds) return true;
    if (now < next_trial_) return false;
    next_trial_ = now + trial_interval;
    return true;
  }

 private:
  static constexpr double share_of_compute = 0.8;  // what a fetch may take of the time it saves
  static constexpr Duration trial_interval = std::chrono::seconds(10);

  std::optional<double> seconds_per_byte_;
  TimePoint next_trial_{};
};

}  // namespace caravan::kv
