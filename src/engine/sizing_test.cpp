#include "engine/sizing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace caravan::engine {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

constexpr std::uint64_t mebi = std::uint64_t{1} << 20;
constexpr std::uint64_t gibi = std::uint64_t{1} << 30;

// 300M parameters in q4_0: 24 KiB of KV a token.
ModelFacts bench(std::uint32_t context_train) {
  ModelFacts facts;
  facts.architecture = "llama";
  facts.context_train = context_train;
  facts.embedding_length = 1024;
  facts.feed_forward_length = 3072;
  facts.heads = 16;
  facts.query_values = 1024;
  facts.vocabulary = 2048;
  facts.layers.assign(24, {.key_values = 256, .value_values = 256});
  facts.layer_bytes.assign(24, 6 * mebi);
  facts.input_bytes = facts.output_bytes = 2 * mebi;
  facts.repackable_bytes = 144 * mebi;
  return facts;
}

MemoryBudget container(std::uint64_t bytes) {
  MemoryBudget budget;
  budget.host = {.name = "CPU", .description = "", .total_bytes = bytes, .free_bytes = bytes};
  budget.host_limit = "the container's limit";
  budget.host_shared = false;
  return budget;
}

Sizing chosen(const ModelFacts& facts, const SizingRequest& request, const MemoryBudget& budget) {
  auto sizing = choose(facts, request, budget);
  EXPECT_TRUE(sizing.has_value()) << sizing.error().message;
  return sizing ? *sizing : Sizing{};
}

TEST(Choose, TakesTheLargestContextThatFitsAndStaysInside) {
  std::uint32_t last = 0;
  for (const std::uint64_t limit : {1, 2, 4, 8}) {
    const MemoryBudget budget = container(limit * gibi);
    const ModelFacts facts = bench(1 << 20);
    const Sizing sizing = chosen(facts, {}, budget);
    EXPECT_TRUE(sizing.fits);
    EXPECT_LT(sizing.devices.back().total_bytes(), limit * gibi * 15 / 16 + 1);
    EXPECT_GT(sizing.devices.back().total_bytes(), limit * gibi * 9 / 10 - 96 * mebi);
    EXPECT_GT(sizing.shape.cells, last);
    ContextShape more = sizing.shape;
    more.cells += 256;
    EXPECT_FALSE(memory_need(facts, more, -1, budget).back().fits());
    EXPECT_THAT(sizing.why, Contains(AllOf(HasSubstr("weights"), HasSubstr("KV"), HasSubstr("compute"))));
    EXPECT_THAT(sizing.why, Contains(HasSubstr("the most that fits (the model was trained for 1048576)")));
    last = sizing.shape.cells;
  }
}

TEST(Choose, TakesNoMoreThanTheModelAndItsUsersCanUse) {
  for (const std::uint64_t limit : {4, 8}) {
    const Sizing sizing = chosen(bench(2048), {}, container(limit * gibi));
    EXPECT_EQ(sizing.shape.cells, 16 * 2048U);
    EXPECT_EQ(sizing.context_tokens, 2048U);
    EXPECT_EQ(sizing.parallel, 16U);
  }
  EXPECT_EQ(chosen(bench(131072), {}, container(64 * gibi)).shape.cells, 131072U);
  EXPECT_EQ(chosen(bench(8192), {}, container(64 * gibi)).shape.cells, 16 * 4096U);
}

TEST(Choose, LeavesHalfOfASharedMachineToOthers) {
  MemoryBudget budget = container(8 * gibi);
  budget.host_shared = true;
  const Sizing sizing = chosen(bench(1 << 20), {}, budget);
  EXPECT_LE(sizing.devices.back().total_bytes(), 4 * gibi);
}

TEST(Choose, ServesFewerUsersBeforeItGivesUp) {
  ModelFacts hybrid = bench(8192);
  hybrid.hybrid = true;
  for (LayerMemory& layer : hybrid.layers) layer.state_values = 1 << 18;  // 24 MiB a sequence
  EXPECT_EQ(chosen(hybrid, {}, container(8 * gibi)).parallel, 16U);
  const Sizing tight = chosen(hybrid, {}, container(900 * mebi));
  EXPECT_LT(tight.parallel, 16U);
  EXPECT_GT(tight.parallel, 0U);
  const auto none = choose(hybrid, {}, container(200 * mebi));
  ASSERT_FALSE(none.has_value());
  EXPECT_EQ(none.error().code, ErrorCode::exhausted);
  EXPECT_THAT(none.error().message,
              AllOf(HasSubstr("not enough memory on CPU"), HasSubstr("the container's limit"), HasSubstr("weights")));
}

TEST(Choose, KeepsWhatWasAskedForAndSaysWhenItDoesNotFit) {
  const Sizing small = chosen(bench(1 << 20), {.cells = 4096, .parallel = 3}, container(2 * gibi));
  EXPECT_EQ(small.shape.cells, 4096U);
  EXPECT_EQ(small.parallel, 3U);
  EXPECT_TRUE(small.fits);
  const Sizing large = chosen(bench(1 << 20), {.cells = 1 << 20}, container(2 * gibi));
  EXPECT_EQ(large.shape.cells, 1U << 20);
  EXPECT_FALSE(large.fits);
  EXPECT_THAT(large.why, Contains(HasSubstr("would need")));
}

TEST(Choose, CountsMappedAndRearrangedWeightsAgainstAnAddressSpace) {
  MemoryBudget budget = container(gibi);
  const std::uint32_t without = chosen(bench(1 << 20), {}, budget).shape.cells;
  budget.address_space_bytes = gibi;
  const std::uint32_t with = chosen(bench(1 << 20), {}, budget).shape.cells;
  EXPECT_LT(with, without);
  EXPECT_GE(with, 512U);
}

TEST(MemoryNeed, SpreadsLayersOverAcceleratorsAsAsked) {
  const ModelFacts facts = bench(8192);
  const ContextShape shape{.cells = 8192, .sequences = 16};
  MemoryBudget budget = container(8 * gibi);
  budget.accelerators = {{.name = "GPU0", .description = "", .total_bytes = 4 * gibi, .free_bytes = 3 * gibi},
                         {.name = "GPU1", .description = "", .total_bytes = 4 * gibi, .free_bytes = gibi}};
  const auto all = memory_need(facts, shape, -1, budget);
  ASSERT_EQ(all.size(), 3U);
  // Three quarters of the memory take three quarters of 24 layers and a head: 19 layers, and 5 with the head.
  EXPECT_EQ(all[0].kv_bytes * 5, all[1].kv_bytes * 19);
  EXPECT_EQ(all[2].kv_bytes, 0U);
  EXPECT_EQ(all[2].weights_bytes, facts.input_bytes);
  EXPECT_EQ(all[0].weights_bytes + all[1].weights_bytes + all[2].weights_bytes, facts.weights_bytes());
  const auto some = memory_need(facts, shape, 9, budget);
  EXPECT_EQ(some[2].kv_bytes, 16 * kv_bytes(facts, shape) / 24);
  const auto none = memory_need(facts, shape, 0, budget);
  EXPECT_EQ(none[2].kv_bytes, kv_bytes(facts, shape));
  EXPECT_EQ(none[0].total_bytes(), 0U);
}

TEST(SizingTable, MarksWhatFitsForEachType) {
  const auto table = sizing_table(bench(131072), {}, container(2 * gibi));
  EXPECT_TRUE(table.front().fits);
  EXPECT_FALSE(table.back().fits);
  std::size_t fitting_f16 = 0;
  std::size_t fitting_q4_0 = 0;
  for (const SizingCell& cell : table) {
    if (cell.fits && cell.type == GGML_TYPE_F16) ++fitting_f16;
    if (cell.fits && cell.type == GGML_TYPE_Q4_0) ++fitting_q4_0;
  }
  EXPECT_GT(fitting_q4_0, fitting_f16);
}

}  // namespace
}  // namespace caravan::engine
