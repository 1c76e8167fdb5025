#include "engine/compute_threads.h"

#include <gtest/gtest.h>

namespace caravan::engine {
namespace {

// A machine of two cores on which decoding takes what it takes; time passes by the steps themselves.
class Machine {
 public:
  // Undisturbed, the second thread nearly halves a step; beside a rival two threads crawl, and one has a core to
  // itself.
  void run(ComputeThreads& threads, int steps) {
    for (int i = 0; i < steps; ++i) {
      const bool fight = rival && threads.count() == 2;
      const double took = threads.count() == 1 ? 0.010 : fight ? 0.150 : 0.006;
      const double cpu = took * threads.count() * (fight ? 0.67 : 0.98) * (gpu ? 0.1 : 1);
      now += span(took);
      total += took;
      at_two += threads.count() == 2 ? 1 : 0;
      threads.observe({.took = span(took), .cpu = span(cpu), .involuntary_switches = fight ? 30U : 0U}, now);
    }
  }
  static Duration span(double value) {
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(value));
  }

  bool rival = false;
  bool gpu = false;
  TimePoint now{};
  double total = 0;
  int at_two = 0;
};

TEST(ComputeThreads, AllCoresWhileNobodyElseWantsThem) {
  ComputeThreads threads(2);
  Machine machine;
  machine.run(threads, 200);
  EXPECT_EQ(machine.at_two, 200);
}

TEST(ComputeThreads, StepsDownAsSoonAsARivalShows) {
  ComputeThreads threads(2);
  Machine machine;
  machine.run(threads, 50);
  machine.rival = true;
  machine.run(threads, 2);
  EXPECT_EQ(threads.count(), 1U);
}

TEST(ComputeThreads, ARivalFromTheStartIsSeenAsWell) {
  ComputeThreads threads(2);
  Machine machine;
  machine.rival = true;
  machine.run(threads, 2);
  EXPECT_EQ(threads.count(), 1U);
}

TEST(ComputeThreads, LosesLittleToProbesWhileTheRivalStays) {
  ComputeThreads threads(2);
  Machine machine;
  machine.rival = true;
  machine.run(threads, 5);
  machine.total = 0;
  machine.run(threads, 3000);
  EXPECT_LT(machine.total, 3000 * 0.010 * 1.1);  // all at two threads would be 15 times that
}

TEST(ComputeThreads, TakesTheCoreBackWhenTheRivalIsGone) {
  ComputeThreads threads(2);
  Machine machine;
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

TEST(ComputeThreads, WaitingForAGpuIsNoFight) {
  ComputeThreads threads(2);
  Machine machine;
  machine.gpu = true;
  machine.run(threads, 200);
  EXPECT_EQ(threads.count(), 2U);
}

}  // namespace
}  // namespace caravan::engine
