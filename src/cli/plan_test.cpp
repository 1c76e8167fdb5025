#include "cli/plan.h"

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace caravan::cli {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t gibi = std::uint64_t{1} << 30;

Plan example() {
  Plan plan;
  plan.model_path = "my models/m.gguf";
  plan.model_name = "M";
  plan.facts.architecture = "llama";
  plan.facts.context_train = 32768;
  plan.facts.embedding_length = 1024;
  plan.facts.feed_forward_length = 3072;
  plan.facts.layers.assign(24, {.key_values = 256, .value_values = 256});
  plan.facts.layer_bytes.assign(24, 1 << 20);
  engine::MemoryBudget budget;
  budget.host = {.name = "CPU", .description = "", .total_bytes = 2 * gibi, .free_bytes = 2 * gibi};
  budget.host_limit = "the container's limit of 2.0 GiB";
  budget.host_shared = false;
  const engine::SizingRequest request{.ubatch_tokens = 256, .type_k = GGML_TYPE_Q8_0};
  plan.request = request;
  plan.sizing = *engine::choose(plan.facts, request, budget);
  plan.table = engine::sizing_table(plan.facts, request, budget);
  return plan;
}

TEST(PlanText, HasTheDevicesATableTheChoiceItsReasonsAndTheFlags) {
  const std::string text = plan_text(example());
  EXPECT_THAT(text, HasSubstr("M: llama"));
  EXPECT_THAT(text, HasSubstr("device  may be taken"));
  EXPECT_THAT(text, HasSubstr("fits"));
  EXPECT_THAT(text, HasSubstr("K and V  users"));
  EXPECT_THAT(text, HasSubstr("q4_0"));
  EXPECT_THAT(text, HasSubstr("(49."));  // 64 users with 32768 tokens each do not fit
  EXPECT_THAT(text, HasSubstr("choice: "));
  EXPECT_THAT(text, HasSubstr("2.0 GiB left by the container's limit of 2.0 GiB"));
  EXPECT_THAT(text, HasSubstr("caravan serve -m 'my models/m.gguf' --kvsize "));
  EXPECT_THAT(text, HasSubstr("--cache-type-k q8_0 --ubatch-size 256"));
}

TEST(PlanText, OfAModelForEmbeddingsHasNoKv) {
  Plan plan = example();
  plan.facts.decoder = false;
  EXPECT_THAT(plan_text(plan), HasSubstr("embeddings only"));
  EXPECT_EQ(serve_command(plan), "caravan serve -m 'my models/m.gguf'");
}

TEST(PlanJson, HasTheSameFigures) {
  const Plan plan = example();
  const auto value = boost::json::parse(plan_json(plan));
  EXPECT_EQ(value.at("choice").at("cells").to_number<std::uint32_t>(), plan.sizing.shape.cells);
  EXPECT_EQ(value.at("devices").as_array().size(), 1U);
  EXPECT_EQ(value.at("users_by_context").as_array().size(), plan.table.size());
  EXPECT_EQ(value.at("command").as_string(), serve_command(plan));
  EXPECT_TRUE(value.at("choice").at("fits").as_bool());
}

}  // namespace
}  // namespace caravan::cli
