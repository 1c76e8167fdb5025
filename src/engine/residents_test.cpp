#include "engine/residents.h"

#include <gtest/gtest.h>

namespace caravan::engine {
namespace {

constexpr std::uint32_t cells = 1000;

TEST(Residents, TheOldestGoesFirst) {
  const ResidentView residents[] = {{.sequence = 0, .length = 100, .last_used = 50},
                                    {.sequence = 1, .length = 100, .last_used = 20},
                                    {.sequence = 2, .length = 100, .last_used = 90}};
  const auto eviction = choose_eviction(residents, cells, EvictFor::cells);
  ASSERT_TRUE(eviction);
  EXPECT_EQ(eviction->sequence, 1U);
  EXPECT_EQ(eviction->keep, 0U);
}

TEST(Residents, NothingToEvictIsNone) { EXPECT_FALSE(choose_eviction({}, cells, EvictFor::cells)); }

TEST(Residents, TheLeafGoesBeforeItsTrunk) {
  std::vector<Fork> forks;
  note_fork(forks, 60, 80);
  ResidentView resident{.sequence = 0, .length = 100, .last_used = 10, .forks = forks};
  const auto leaf = choose_eviction({&resident, 1}, cells, EvictFor::cells);
  ASSERT_TRUE(leaf);
  EXPECT_EQ(leaf->keep, 60U);
  resident.length = leaf->keep;
  // The trunk was used at tick 80, and once more counts as a turnover: an unused newcomer goes before it.
  const ResidentView residents[] = {resident, {.sequence = 1, .length = 100, .last_used = 900}};
  const auto next = choose_eviction(residents, cells, EvictFor::cells);
  ASSERT_TRUE(next);
  EXPECT_EQ(next->sequence, 1U);
}

TEST(Residents, WhatOthersHoldIsNotGivenUpForCells) {
  const ResidentView residents[] = {{.sequence = 0, .length = 100, .unshared_from = 100, .last_used = 1},
                                    {.sequence = 1, .length = 100, .unshared_from = 80, .last_used = 500}};
  const auto for_cells = choose_eviction(residents, cells, EvictFor::cells);
  ASSERT_TRUE(for_cells);
  EXPECT_EQ(for_cells->sequence, 1U);
  EXPECT_EQ(for_cells->keep, 80U);
  const auto for_id = choose_eviction(residents, cells, EvictFor::sequence_id);
  ASSERT_TRUE(for_id);
  EXPECT_EQ(for_id->sequence, 0U);
  EXPECT_EQ(for_id->keep, 0U);
}

TEST(Residents, AOneTimeVisitorDoesNotPushOutAConversation) {
  const ResidentView residents[] = {
      {.sequence = 0, .length = 400, .uses = 3, .last_used = 100},   // a chat of some turns
      {.sequence = 1, .length = 400, .uses = 0, .last_used = 700}};  // a side request
  EXPECT_EQ(choose_eviction(residents, cells, EvictFor::cells)->sequence, 1U);
  // But an old conversation does not stay for ever.
  const ResidentView later[] = {{.sequence = 0, .length = 400, .uses = 3, .last_used = 100},
                                {.sequence = 1, .length = 400, .uses = 0, .last_used = 5000}};
  EXPECT_EQ(choose_eviction(later, cells, EvictFor::cells)->sequence, 0U);
}

TEST(Residents, ASideRequestGoesBeforeTheChatItQuotes) {
  const ResidentView residents[] = {{.sequence = 0, .length = 400, .last_used = 100},
                                    {.sequence = 1, .length = 430, .last_used = 700, .quotes = true}};
  EXPECT_EQ(choose_eviction(residents, cells, EvictFor::cells)->sequence, 1U);
}

TEST(Residents, ForAnIdTheShortGoBeforeTheLong) {
  const ResidentView residents[] = {{.sequence = 0, .length = 512, .last_used = 100},
                                    {.sequence = 1, .length = 20, .last_used = 900}};
  EXPECT_EQ(choose_eviction(residents, cells, EvictFor::sequence_id)->sequence, 1U);
  EXPECT_EQ(choose_eviction(residents, cells, EvictFor::cells)->sequence, 0U);
}

TEST(Residents, StateThatCannotBeCutGoesWhole) {
  std::vector<Fork> forks;
  note_fork(forks, 60, 80);
  const ResidentView resident{.sequence = 0, .length = 100, .last_used = 10, .forks = forks, .can_trim = false};
  EXPECT_EQ(choose_eviction({&resident, 1}, cells, EvictFor::cells)->keep, 0U);
}

TEST(Residents, ForksAreBounded) {
  std::vector<Fork> forks;
  for (std::uint32_t i = 1; i <= 2 * forks_max; ++i) note_fork(forks, i, i);
  EXPECT_EQ(forks.size(), forks_max);
  EXPECT_EQ(forks.back().at, 2 * forks_max);
}

}  // namespace
}  // namespace caravan::engine
