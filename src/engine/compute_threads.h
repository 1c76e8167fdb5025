// How many threads compute, from what step times show. Pure.
//
// ggml's threads spin at barriers: with a thread for each core, one other busy thread on the machine makes every step
// wait for the thread that lost its core, and decoding falls to a tenth. So the count steps down as soon as steps of
// the same kind become much slower than they were, and tries the next higher count again now and then, at growing
// intervals while that does not pay.
//
//   state     step time                           next
//   steady    slow twice in a row, count > 1      steady, count - 1; remembers the count that was slow
//   steady    retry is due, count < most          probing, count + 1
//   probing   time per unit better than before    steady at the new count; retry interval back to the shortest
//   probing   else                                steady, count - 1; retry interval doubled
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/clock.h"

namespace caravan::engine {

class ComputeThreads {
 public:
  explicit ComputeThreads(std::uint32_t most);

  [[nodiscard]] std::uint32_t count() const { return count_; }

  // A step of `tokens` tokens whose attention spanned `cells` cells took `took`. Steps are compared with steps of the
  // same kind only: about as many tokens, about as many cells.
  void observe(std::uint32_t tokens, std::uint32_t cells, Duration took, TimePoint now);

 private:
  static constexpr std::size_t kinds = 12 * 24;

  static std::size_t kind_of(std::uint32_t tokens, std::uint32_t cells);
  std::optional<double>& usual(std::uint32_t count, std::size_t kind) { return usual_[(count - 1) * kinds + kind]; }
  void settle_down(TimePoint now);

  std::uint32_t most_;
  std::uint32_t count_;
  std::vector<std::optional<double>> usual_;  // seconds of an undisturbed step, by count and kind
  std::uint32_t slow_in_a_row_ = 0;
  // While probing: steps seen at count_ and what the same kinds took at count_ - 1.
  bool probing_ = false;
  std::uint32_t probed_ = 0;
  double probe_time_ = 0;
  double probe_reference_ = 0;
  Duration retry_interval_;
  TimePoint retry_at_{};
};

}  // namespace caravan::engine
