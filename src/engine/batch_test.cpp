#include "engine/batch.h"

#include <gtest/gtest.h>

namespace caravan::engine {
namespace {

constexpr BatchLimits limits{.batch_tokens = 512, .chunk_tokens = 128, .block_tokens = 64};

BatchCandidate prefill(std::uint32_t sequence, std::uint32_t past, std::uint32_t target) {
  return {.sequence = sequence, .past = past, .target = target};
}
BatchCandidate decode(std::uint32_t sequence, std::uint32_t past) {
  return {.sequence = sequence, .past = past, .target = past + 1, .decoding = true};
}

TEST(PlanBatch, EveryDecodingSequenceGetsItsToken) {
  const BatchCandidate candidates[] = {decode(0, 10), prefill(1, 0, 2000), decode(2, 20)};
  const auto parts = plan_batch(candidates, limits);
  ASSERT_EQ(parts.size(), 3U);
  EXPECT_EQ(parts[0].count, 1U);
  EXPECT_TRUE(parts[0].output);
  EXPECT_EQ(parts[1].count, 128U);  // the long prompt does not stall the streams
  EXPECT_FALSE(parts[1].output);
  EXPECT_EQ(parts[2].count, 1U);
}

TEST(PlanBatch, APrefillAloneTakesTheWholeBatch) {
  const BatchCandidate candidates[] = {prefill(1, 0, 2000)};
  EXPECT_EQ(plan_batch(candidates, limits)[0].count, 512U);
}

TEST(PlanBatch, ChunksEndAtBlocksUnlessThePromptEnds) {
  const BatchCandidate unaligned[] = {prefill(1, 10, 2000)};
  EXPECT_EQ(plan_batch(unaligned, limits)[0].count, 512U - 64 + 54);  // to 512
  const BatchCandidate last[] = {prefill(1, 512, 700)};
  const auto parts = plan_batch(last, limits);
  EXPECT_EQ(parts[0].count, 188U);
  EXPECT_TRUE(parts[0].output);
}

TEST(PlanBatch, StopsWhereAnotherBranchesOff) {
  BatchCandidate candidate = prefill(1, 0, 400);
  candidate.stop_at = 333;
  const auto parts = plan_batch({&candidate, 1}, limits);
  EXPECT_EQ(parts[0].count, 333U);
  EXPECT_FALSE(parts[0].output);
}

TEST(PlanBatch, WhatIsLeftGoesToTheNextPrefill) {
  const BatchCandidate candidates[] = {prefill(1, 0, 100), prefill(2, 0, 100), prefill(3, 0, 2000), prefill(4, 0, 9)};
  const auto parts = plan_batch(candidates, limits);
  ASSERT_EQ(parts.size(), 4U);
  EXPECT_EQ(parts[2].count, 256U);
  EXPECT_EQ(parts[3].count, 9U);
  std::uint32_t sum = 0;
  for (const BatchPart& part : parts) sum += part.count;
  EXPECT_LE(sum, limits.batch_tokens);
}

TEST(ChooseChunk, FollowsTheRateOnALadder) {
  EXPECT_EQ(choose_chunk(10, 0.25, 64, 512), 64U);
  EXPECT_EQ(choose_chunk(700, 0.25, 64, 512), 128U);
  EXPECT_EQ(choose_chunk(800, 0.25, 64, 512), 192U);
  EXPECT_EQ(choose_chunk(1600, 0.25, 64, 512), 384U);
  EXPECT_EQ(choose_chunk(1e6, 0.25, 64, 512), 512U);
  EXPECT_EQ(choose_chunk(1e6, 0.25, 64, 32), 32U);
}

}  // namespace
}  // namespace caravan::engine
