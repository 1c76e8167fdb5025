// Every shape loads and generates in libllama, and the same flags give the same bytes.
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <llama.h>

#include "engine/model.h"
#include "file.h"
#include "shapes.h"
#include "tokenizer.h"

namespace caravan::synth {
namespace {

namespace fs = std::filesystem;

struct FreeContext {
  void operator()(llama_context* context) const { llama_free(context); }
};

class SynthModel : public testing::TestWithParam<std::string> {
 protected:
  fs::path write(const Dimensions& dimensions, ggml_type type, std::uint64_t seed, unsigned threads, const char* name) {
    const auto plan =
        plan_model(shape_, dimensions, type, static_cast<std::uint32_t>(tokenizer_.tokens.size()), tokenizer_.control);
    EXPECT_TRUE(plan.has_value());
    const fs::path path = folder_ / name;
    const auto written = write_model(*plan, tokenizer_, seed, threads, path);
    EXPECT_TRUE(written.has_value());
    EXPECT_EQ(fs::file_size(path), written->bytes);
    return path;
  }
  static std::string bytes(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void SetUp() override {
    folder_ = fs::path(testing::TempDir()) / ("synth_model_" + GetParam());
    fs::create_directories(folder_);
    shape_ = *find_shape(GetParam());
  }
  void TearDown() override { fs::remove_all(folder_); }

  Tokenizer tokenizer_ = demo_tokenizer();
  Shape shape_;
  fs::path folder_;
};

// A run of greedy tokens; empty when a logit is not finite.
std::vector<llama_token> generate(const engine::Model& model, std::vector<llama_token> prompt, int count) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = 1024;
  params.n_threads = params.n_threads_batch = 1;  // as many models as cores may be under test
  const std::unique_ptr<llama_context, FreeContext> context(llama_init_from_model(model.handle(), params));
  EXPECT_NE(context, nullptr);
  std::vector<llama_token> generated;
  while (context && static_cast<int>(generated.size()) < count) {
    EXPECT_EQ(llama_decode(context.get(), llama_batch_get_one(prompt.data(), static_cast<std::int32_t>(prompt.size()))),
              0);
    const float* logits = llama_get_logits_ith(context.get(), -1);
    llama_token best = 0;
    for (llama_token token = 0; token < static_cast<llama_token>(model.info().vocabulary); ++token) {
      if (!std::isfinite(logits[token])) return {};
      if (logits[token] > logits[best]) best = token;
    }
    generated.push_back(best);
    prompt = {best};
  }
  return generated;
}

TEST_P(SynthModel, IsTheSameBytesForTheSameSeedOnAnyNumberOfThreads) {
  const std::string once = bytes(write(shape_.defaults, shape_.type, 7, 1, "a.gguf"));
  EXPECT_TRUE(once == bytes(write(shape_.defaults, shape_.type, 7, 3, "b.gguf")));
  EXPECT_FALSE(once == bytes(write(shape_.defaults, shape_.type, 8, 3, "c.gguf")));
  EXPECT_LT(once.size(), 8U << 20);
}

TEST_P(SynthModel, LoadsAndGeneratesFiniteVariedTokensThatDependOnThePrompt) {
  for (const ggml_type type : {shape_.type, GGML_TYPE_Q4_0}) {
    const fs::path path = write(shape_.defaults, type, 1, 2, "model.gguf");
    const auto model = engine::Model::load({.path = path});
    ASSERT_TRUE(model.has_value()) << model.error().message;
    EXPECT_EQ((*model)->info().architecture, shape_.architecture);
    EXPECT_FALSE((*model)->info().chat_template.empty());
    if (!(*model)->info().decoder) continue;
    const auto text = [&](const char* prompt) {
      auto tokens = (*model)->tokenize(prompt, engine::AddSpecial::yes, engine::ParseSpecial::yes);
      EXPECT_TRUE(tokens.has_value());
      return generate(**model, *tokens, 200);
    };
    const auto first = text("Items can be returned within 42 days. Can I return my tent?");
    const auto second = text("Items may be returned within 42 days. Can I return my tent?");
    ASSERT_EQ(first.size(), 200U);
    EXPECT_GT(std::set(first.begin(), first.end()).size(), 20U);
    EXPECT_NE(first, second);
    for (const llama_token token : first) EXPECT_FALSE((*model)->ends_generation(token));
  }
}

std::vector<std::string> small_shapes() {
  std::vector<std::string> names;
  for (const Shape& shape : shapes()) {
    if (shape.name != "bench-300m") names.emplace_back(shape.name);
  }
  return names;
}

std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
}

INSTANTIATE_TEST_SUITE_P(Shapes, SynthModel, testing::ValuesIn(small_shapes()), test_name);

TEST(Tokenizer, IsTheDemoModels) {
  const auto demo = engine::Model::load({.path = fs::path(CARAVAN_SOURCE_DIR) / "models/demo/desk-2.8m-q8_0.gguf"});
  ASSERT_TRUE(demo.has_value());
  const Tokenizer tokenizer = demo_tokenizer();
  ASSERT_EQ(tokenizer.tokens.size(), (*demo)->info().vocabulary);
  for (llama_token token = 0; token < static_cast<llama_token>(tokenizer.tokens.size()); ++token) {
    EXPECT_EQ(tokenizer.tokens[token], llama_vocab_get_text((*demo)->vocabulary(), token));
  }
  EXPECT_EQ(static_cast<llama_token>(tokenizer.end_of_turn), llama_vocab_eos((*demo)->vocabulary()));
}

TEST(Plan, RefusesDimensionsThatDoNotGoTogether) {
  const Shape dense = *find_shape("dense");
  const auto refused = plan_model(dense, {.heads = 4, .kv_heads = 3}, GGML_TYPE_F16, 2048, {});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message, "--kv-heads 3: must divide --heads");
  EXPECT_FALSE(plan_model(dense, {.layers = 0}, GGML_TYPE_F16, 2048, {}).has_value());
  EXPECT_TRUE(plan_model(dense, {}, GGML_TYPE_F16, 2048, {}).has_value());
}

}  // namespace
}  // namespace caravan::synth
