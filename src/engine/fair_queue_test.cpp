#include "engine/fair_queue.h"

#include <vector>

#include <gtest/gtest.h>

namespace caravan::engine {
namespace {

std::vector<int> drain(FairQueue<int>& queue) {
  std::vector<int> order;
  while (!queue.empty()) order.push_back(queue.pop());
  return order;
}

TEST(FairQueue, TenantsTakeTurns) {
  FairQueue<int> queue;
  for (int i = 0; i < 4; ++i) queue.push_back("greedy", i);
  queue.push_back("modest", 10);
  queue.push_back("modest", 11);
  EXPECT_EQ(queue.size(), 6U);
  EXPECT_EQ(drain(queue), (std::vector{0, 10, 1, 11, 2, 3}));
}

TEST(FairQueue, WhatMadeRoomGoesFirst) {
  FairQueue<int> queue;
  queue.push_back("a", 1);
  queue.push_back("b", 2);
  queue.push_front("b", 0);
  EXPECT_EQ(drain(queue), (std::vector{0, 1, 2}));
}

TEST(FairQueue, RemovesWhatIsGone) {
  FairQueue<int> queue;
  for (int i = 0; i < 6; ++i) queue.push_back(i % 2 == 0 ? "even" : "odd", i);
  queue.remove_if([](int item) { return item % 2 == 0; });
  EXPECT_EQ(drain(queue), (std::vector{1, 3, 5}));
  EXPECT_EQ(queue.size(), 0U);
}

}  // namespace
}  // namespace caravan::engine
