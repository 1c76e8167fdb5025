#include "engine/sampler.h"

#include <cmath>
#include <limits>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/check.h"
#include "engine/model.h"

namespace caravan::engine {
namespace {

const Model& demo() {
  static const std::unique_ptr<Model> model = [] {
    auto loaded = Model::load({.path = CARAVAN_SOURCE_DIR "/models/demo/desk-2.8m-q8_0.gguf"});
    CHECK(loaded.has_value());
    return std::move(*loaded);
  }();
  return *model;
}

std::vector<float> random_logits(std::uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(demo().info().vocabulary);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

Sampler make(const SamplingParams& params, std::uint32_t choice = 0) {
  auto sampler = Sampler::create(demo(), params, choice);
  CHECK(sampler.has_value());
  return std::move(*sampler);
}

std::vector<Token> draw(Sampler sampler, int count) {
  std::vector<Token> tokens;
  for (int i = 0; i < count; ++i) {
    tokens.push_back(sampler.sample(random_logits(static_cast<std::uint32_t>(i))));
    sampler.accept(tokens.back());
  }
  return tokens;
}

SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

TEST(Sampler, GreedyTakesTheMostProbable) {
  const auto logits = random_logits(1);
  const auto most = static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
  EXPECT_EQ(make(greedy()).sample(logits), most);
  SamplingParams one;
  one.top_k = 1;
  EXPECT_EQ(make(one).sample(logits), most);
}

TEST(Sampler, TheSameSeedDrawsTheSameTokens) {
  SamplingParams params;
  params.seed = 42;
  params.temperature = 1.5F;
  EXPECT_EQ(draw(make(params), 30), draw(make(params), 30));
  EXPECT_NE(draw(make(params, 0), 30), draw(make(params, 1), 30));  // choices differ
  params.seed = 43;
  EXPECT_NE(draw(make(params), 30), draw(make({.temperature = 1.5F, .seed = 42}), 30));
}

TEST(Sampler, BiasBansAndForces) {
  const auto logits = random_logits(1);
  const auto most = static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
  SamplingParams params = greedy();
  params.logit_bias = {{most, -std::numeric_limits<float>::infinity()}};
  EXPECT_NE(make(params).sample(logits), most);
  params.logit_bias = {{7, 100}};
  EXPECT_EQ(make(params).sample(logits), 7);
}

TEST(Sampler, PenaltiesKeepAwayFromWhatWasSaid) {
  const auto logits = random_logits(1);
  SamplingParams params = greedy();
  params.presence_penalty = 50;
  Sampler sampler = make(params);
  const Token first = sampler.sample(logits);
  sampler.accept(first);
  EXPECT_NE(sampler.sample(logits), first);
  Sampler prompted = make(params);
  const Token prompt[] = {first};
  prompted.accept_prompt(prompt);
  EXPECT_NE(prompted.sample(logits), first);
}

TEST(Sampler, IgnoreEosNeverEnds) {
  SamplingParams params = greedy();
  params.ignore_eos = true;
  std::vector<float> logits(demo().info().vocabulary, 0.0F);
  for (Token token = 0; token < static_cast<Token>(logits.size()); ++token) {
    if (demo().ends_generation(token)) logits[static_cast<std::size_t>(token)] = 50;
  }
  EXPECT_FALSE(demo().ends_generation(make(params).sample(logits)));
  EXPECT_TRUE(demo().ends_generation(make(greedy()).sample(logits)));
}

TEST(Sampler, TheGrammarIsKeptWhateverTheLogitsSay) {
  SamplingParams params;
  params.grammar = "root ::= [0-9]{6}";
  params.temperature = 2;
  params.seed = 1;
  Sampler sampler = make(params);
  std::string text;
  for (std::uint32_t i = 0; i < 10; ++i) {
    const Token token = sampler.sample(random_logits(i));
    sampler.accept(token);
    if (demo().ends_generation(token)) break;
    text += demo().piece(token, ParseSpecial::no);
  }
  EXPECT_EQ(text.size(), 6U);
  EXPECT_THAT(text, testing::Each(testing::AllOf(testing::Ge('0'), testing::Le('9'))));
}

TEST(Sampler, MirostatDraws) {
  for (const std::int32_t version : {1, 2}) {
    SamplingParams params;
    params.mirostat = version;
    params.seed = 1;
    for (const Token token : draw(make(params), 20)) EXPECT_TRUE(demo().valid(token));
  }
}

TEST(Sampler, NotANumberIsNeverChosen) {
  auto logits = random_logits(1);
  for (std::size_t i = 0; i < logits.size(); i += 2) logits[i] = std::numeric_limits<float>::quiet_NaN();
  SamplingParams params;
  params.seed = 1;
  for (int i = 0; i < 20; ++i) EXPECT_EQ(make(params).sample(logits) % 2, 1);
}

TEST(Sampler, LogprobsAddUpToOne) {
  const auto logits = random_logits(1);
  const auto size = static_cast<std::uint32_t>(logits.size());
  const TokenLogprob all = Sampler::logprob(demo(), logits, 3, size);
  double sum = 0;
  for (const TokenAlternative& each : all.top) sum += std::exp(each.logprob);
  EXPECT_NEAR(sum, 1.0, 1e-4);
  EXPECT_EQ(all.chosen.token, 3);
  EXPECT_GE(all.top[0].logprob, all.top[1].logprob);
}

TEST(ValidateSampling, NamesTheFieldAndTheValue) {
  const auto refused = [](auto change) {
    SamplingParams params;
    change(params);
    const Status status = validate(params, demo());
    return status ? std::string("accepted") : status.error().message;
  };
  EXPECT_THAT(refused([](auto& p) { p.temperature = -1; }),
              testing::AllOf(testing::HasSubstr("temperature"), testing::HasSubstr("-1")));
  EXPECT_THAT(refused([](auto& p) { p.top_p = 1.5F; }), testing::HasSubstr("top_p"));
  EXPECT_THAT(refused([](auto& p) { p.temperature = NAN; }), testing::HasSubstr("temperature"));
  EXPECT_THAT(refused([](auto& p) { p.logit_bias = {{999999, 1}}; }), testing::HasSubstr("999999"));
  for (const char* grammar : {"root ::= (", "nothing ::= \"a\"", "root ::= root \"a\"", "root ::= missing", "\x01"}) {
    EXPECT_THAT(refused([&](auto& p) { p.grammar = grammar; }), testing::HasSubstr("grammar")) << grammar;
  }
  EXPECT_THAT(
      refused([](auto& p) { p.grammar = "root ::= " + std::string(500, '(') + "\"a\"" + std::string(500, ')'); }),
      testing::HasSubstr("grammar"));
  EXPECT_EQ(refused([](auto&) {}), "accepted");
}

}  // namespace
}  // namespace caravan::engine
