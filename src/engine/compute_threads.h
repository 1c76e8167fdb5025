// How many threads compute, from what steps show. Pure.
//
// ggml's threads spin at barriers: with a thread for each core, one other busy thread on the machine makes every step
// wait for the thread that lost its core, and decoding falls to a tenth. So the count steps down as soon as steps show
// that somebody fights for the cores: threads were taken off them (involuntary context switches), and the step lasted
// longer than the CPU time it got. It tries the next higher count again now and then, at growing intervals while that
// does not pay. Steps are judged in windows, so that short ones are measured well; waiting for a GPU takes no thread
// off a core.
//
//   state     window                        next
//   steady    fought over, count > 1        steady, count - 1
//   steady    quiet, retry due, count<most  probing, count + 1
//   probing   fought over                   steady, count - 1; retry interval doubled
//   probing   quiet, twice                  steady; retry interval back to the shortest
#pragma once

#include <cstdint>

#include "base/clock.h"

namespace caravan::engine {

// What the process spent on a step.
struct StepCost {
  Duration took{};                         // wall clock
  Duration cpu{};                          // of all threads together
  std::uint64_t involuntary_switches = 0;  // times a thread was taken off its core
};

class ComputeThreads {
 public:
  explicit ComputeThreads(std::uint32_t most);

  [[nodiscard]] std::uint32_t count() const { return count_; }
  // A step with count() threads is over.
  void observe(const StepCost& step, TimePoint now);

 private:
  void judge(bool fought_over, TimePoint now);

  std::uint32_t most_;
  std::uint32_t count_;
  StepCost window_;
  bool probing_ = false;
  int quiet_windows_ = 0;  // while probing
  Duration retry_interval_;
  TimePoint retry_at_{};
};

}  // namespace caravan::engine
