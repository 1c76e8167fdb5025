#include "engine/compute_threads.h"

#include <gtest/gtest.h>

namespace caravan::engine {
namespace {

// A machine of two cores on which steps take what they take; time passes by the steps themselves.
class Machine {
 public:
  // Seconds of a step with `threads`: undisturbed the second thread nearly halves it, a rival makes two threads crawl.
  void run(ComputeThreads& threads, int steps) {
    for (int i = 0; i < steps; ++i) {
      const double base = threads.count() == 1 ? 0.010 : rival ? 0.150 : 0.006;
      const auto took = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(base));
      now += took;
      total += base;
      threads.observe(1, 500, took, now);
    }
  }
  bool rival = false;
  TimePoint now{};
  double total = 0;
};

TEST(ComputeThreads, AllCoresWhileNobodyElseWantsThem) {
  ComputeThreads threads(2);
  Machine machine;
  machine.run(threads, 200);
  EXPECT_EQ(threads.count(), 2U);
}

TEST(ComputeThreads, StepsDownAsSoonAsARivalShows) {
  ComputeThreads threads(2);
  Machine machine;
  machine.run(threads, 50);
  machine.rival = true;
  machine.run(threads, 2);
  EXPECT_EQ(threads.count(), 1U);
}

TEST(ComputeThreads, LosesLittleToProbesWhileTheRivalStays) {
  ComputeThreads threads(2);
  Machine machine;
  machine.run(threads, 50);
  machine.rival = true;
  machine.run(threads, 5);
  machine.total = 0;
  machine.run(threads, 3000);
  EXPECT_LT(machine.total, 3000 * 0.010 * 1.25);  // all at two threads would be 15 times that
}

TEST(ComputeThreads, TakesTheCoreBackWhenTheRivalIsGone) {
  ComputeThreads threads(2);
  Machine machine;
  machine.run(threads, 50);
  machine.rival = true;
  machine.run(threads, 1000);
  machine.rival = false;
  machine.run(threads, 1500);
  EXPECT_EQ(threads.count(), 2U);
}

TEST(ComputeThreads, OneCoreIsLeftAlone) {
  ComputeThreads threads(1);
  Machine machine;
  machine.run(threads, 100);
  EXPECT_EQ(threads.count(), 1U);
}

TEST(ComputeThreads, AGrowingContextIsNoRival) {
  ComputeThreads threads(2);
  TimePoint now{};
  for (std::uint32_t cells = 100; cells < 30000; cells += 10) {
    const auto took = std::chrono::microseconds(5000 + cells / 2);
    now += took;
    threads.observe(1, cells, took, now);
  }
  EXPECT_EQ(threads.count(), 2U);
}

}  // namespace
}  // namespace caravan::engine
