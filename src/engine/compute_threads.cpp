#include "engine/compute_threads.h"

#include <algorithm>
#include <bit>

namespace caravan::engine {
namespace {

using std::chrono::milliseconds;

constexpr double slow_factor = 2.0;      // a step this much over its usual time was fought over
constexpr std::uint32_t slow_steps = 2;  // so many in a row are no accident
constexpr std::uint32_t probe_steps = 3;
constexpr double gain = 0.92;  // a thread more must bring this at least
constexpr Duration retry_shortest = milliseconds(250);
constexpr Duration retry_longest = milliseconds(8000);

}  // namespace

ComputeThreads::ComputeThreads(std::uint32_t most)
    : most_(std::max(most, 1U)), count_(most_), usual_(std::size_t{most_} * kinds), retry_interval_(retry_shortest) {}

std::size_t ComputeThreads::kind_of(std::uint32_t tokens, std::uint32_t cells) {
  const auto by_tokens = std::min<std::size_t>(std::bit_width(tokens), 11);
  const auto by_cells = std::min<std::size_t>(std::bit_width(cells / 256), 23);
  return by_cells * 12 + by_tokens;
}

void ComputeThreads::settle_down(TimePoint now) {
  --count_;
  probing_ = false;
  slow_in_a_row_ = 0;
  retry_at_ = now + retry_interval_;
  retry_interval_ = std::min(2 * retry_interval_, retry_longest);
}

void ComputeThreads::observe(std::uint32_t tokens, std::uint32_t cells, Duration took, TimePoint now) {
  if (most_ == 1 || tokens == 0) return;
  const double time = seconds(took);
  const std::size_t kind = kind_of(tokens, cells);
  std::optional<double>& usual_time = usual(count_, kind);

  if (probing_) {
    const std::optional<double>& before = usual(count_ - 1, kind);
    if (!before) return;  // nothing to compare with; wait for a kind that was seen
    probe_time_ += time;
    probe_reference_ += *before;
    if (++probed_ < probe_steps) return;
    if (probe_time_ < gain * probe_reference_) {
      probing_ = false;
      slow_in_a_row_ = 0;
      retry_interval_ = retry_shortest;
    } else {
      settle_down(now);
    }
    return;
  }

  const bool slow = usual_time && time > slow_factor * *usual_time;
  slow_in_a_row_ = slow ? slow_in_a_row_ + 1 : 0;
  if (!usual_time || time < *usual_time) {
    usual_time = time;
  } else if (!slow) {
    *usual_time += 0.05 * (time - *usual_time);  // the same kind grows with the context; follow it slowly
  }
  if (slow_in_a_row_ >= slow_steps && count_ > 1) {
    settle_down(now);
    return;
  }
  if (slow_in_a_row_ >= 4 * slow_steps) *usual_time = time;  // slow for long at one thread: that is how it is now
  if (count_ < most_ && now >= retry_at_ && usual_time) {
    ++count_;
    probing_ = true;
    probed_ = 0;
    probe_time_ = probe_reference_ = 0;
  }
}

}  // namespace caravan::engine
