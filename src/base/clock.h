// One monotonic clock for everything that is measured, awaited or decided. Wall-clock time appears only in log lines
// and in the `created` field of responses.
#pragma once

#include <chrono>

namespace caravan {

using Clock = std::chrono::steady_clock;
using TimePoint = Clock::time_point;
using Duration = Clock::duration;

inline double milliseconds(Duration duration) { return std::chrono::duration<double, std::milli>(duration).count(); }
inline double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace caravan
