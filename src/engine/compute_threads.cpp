#include "engine/compute_threads.h"

#include <algorithm>

namespace caravan::engine {
namespace {

using std::chrono::milliseconds;

constexpr Duration window_length = milliseconds(15);  // less cannot tell a fight from an accident
constexpr double cpu_share_quiet = 0.85;              // of count x wall clock; below this, cores were taken away
constexpr std::uint64_t switches_quiet = 1;           // kernel threads take a core for a moment now and then
constexpr int probe_windows = 2;
constexpr Duration retry_shortest = milliseconds(250);
constexpr Duration retry_longest = milliseconds(8000);

}  // namespace

ComputeThreads::ComputeThreads(std::uint32_t most)
    : most_(std::max(most, 1U)), count_(most_), retry_interval_(retry_shortest) {}

void ComputeThreads::observe(const StepCost& step, TimePoint now) {
  window_.took += step.took;
  window_.cpu += step.cpu;
  window_.involuntary_switches += step.involuntary_switches;
  if (window_.took < window_length) return;
  const double share = seconds(window_.cpu) / (count_ * seconds(window_.took));
  const bool fought_over = share < cpu_share_quiet && window_.involuntary_switches > switches_quiet;
  window_ = {};
  judge(fought_over, now);
}

void ComputeThreads::judge(bool fought_over, TimePoint now) {
  if (fought_over && count_ > 1) {
    --count_;
    if (probing_) retry_interval_ = std::min(2 * retry_interval_, retry_longest);
    probing_ = false;
    retry_at_ = now + retry_interval_;
    return;
  }
  if (probing_) {
    if (++quiet_windows_ < probe_windows) return;
    probing_ = false;
    retry_interval_ = retry_shortest;
    return;
  }
  if (fought_over || count_ == most_ || now < retry_at_) return;
  ++count_;
  probing_ = true;
  quiet_windows_ = 0;
}

}  // namespace caravan::engine
