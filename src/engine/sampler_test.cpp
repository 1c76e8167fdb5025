#include "engine/sampler.h"

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <llama.h>

#include "base/check.h"
#include "engine/model.h"

namespace caravan::engine {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float no_number = std::numeric_limits<float>::quiet_NaN();

const Model& demo() {
  static const std::unique_ptr<Model> model = [] {
    auto loaded = Model::load({.path = CARAVAN_SOURCE_DIR "/models/demo/desk-2.8m-q8_0.gguf"});
    CHECK(loaded.has_value());
    return std::move(*loaded);
  }();
  return *model;
}

std::vector<float> random_logits(std::uint32_t seed, float spread = 4) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(demo().info().vocabulary);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

Sampler make(const SamplingParams& params, std::uint32_t choice = 0) {
  const Status valid = validate(params, demo());
  EXPECT_TRUE(valid) << valid.error().message;
  auto made = Sampler::create(demo(), params, choice);
  CHECK(made.has_value());
  return std::move(*made);
}

SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

// `count` tokens, each drawn from other logits and accepted.
std::vector<Token> run(Sampler sampler, int count, float spread = 4) {
  std::vector<Token> tokens;
  for (int i = 0; i < count; ++i) {
    const auto token = sampler.sample(random_logits(static_cast<std::uint32_t>(i), spread));
    if (!token) break;
    tokens.push_back(*token);
    sampler.accept(*token);
  }
  return tokens;
}

Token largest(const std::vector<float>& logits) {
  return static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
}

TEST(Sampler, GreedyTakesTheLargestWhateverElseIsSet) {
  SamplingParams params = greedy();
  params.top_k = 5;
  params.top_p = 0.1F;
  params.min_p = 0.9F;
  Sampler sampler = make(params);
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    const auto logits = random_logits(seed);
    EXPECT_EQ(sampler.sample(logits), largest(logits));
  }
}

TEST(Sampler, OfEqualLogitsGreedyTakesTheFirstOnEveryPath) {
  std::vector<float> logits(demo().info().vocabulary, 1.0F);
  logits[700] = logits[300] = 2.0F;
  EXPECT_EQ(make(greedy()).sample(logits), 300);
  SamplingParams biased = greedy();
  biased.logit_bias = {{5, 0.5F}};
  EXPECT_EQ(make(biased).sample(logits), 300);
}

TEST(Sampler, TheSameSeedGivesTheSameTokensAndAnotherOthers) {
  SamplingParams params;
  params.seed = 42;
  EXPECT_EQ(run(make(params), 50), run(make(params), 50));
  EXPECT_NE(run(make(params), 50), run(make(params, 1), 50));
  EXPECT_EQ(run(make(params, 1), 50), run(make(params, 1), 50));
  SamplingParams other = params;
  other.seed = 43;
  EXPECT_NE(run(make(params), 50), run(make(other), 50));
  SamplingParams unseeded;
  EXPECT_NE(run(make(unseeded), 50), run(make(unseeded), 50));
}

// Picking the largest first must give what libllama's chain gives on the whole vocabulary.
TEST(Sampler, DrawsWhatLibllamasChainDraws) {
  for (const std::int32_t top_k : {1, 3, 40, 0}) {
    SamplingParams params;
    params.seed = 7;
    params.top_k = top_k;
    params.repeat_penalty = 1.3F;
    params.presence_penalty = 0.5F;
    params.logit_bias = {{10, 3.0F}, {11, -infinity}, {10, 1.0F}};
    Sampler sampler = make(params);

    llama_sampler* chain = llama_sampler_chain_init(llama_sampler_chain_default_params());
    const std::vector<llama_logit_bias> biases = {{10, 3.0F}, {11, -infinity}, {10, 1.0F}};
    const auto vocabulary = static_cast<std::int32_t>(demo().info().vocabulary);
    llama_sampler_chain_add(chain, llama_sampler_init_logit_bias(vocabulary, 3, biases.data()));
    llama_sampler_chain_add(chain, llama_sampler_init_penalties(vocabulary, 64, 1.3F, 0, 0.5F));
    if (top_k > 0) llama_sampler_chain_add(chain, llama_sampler_init_top_k(top_k));
    llama_sampler_chain_add(chain, llama_sampler_init_top_p(0.95F, 1));
    llama_sampler_chain_add(chain, llama_sampler_init_min_p(0.05F, 1));
    llama_sampler_chain_add(chain, llama_sampler_init_temp(0.8F));
    llama_sampler_chain_add(chain, llama_sampler_init_dist(7));
    const std::vector<Token> prompt = {1, 2, 3, 10, 10};
    sampler.accept_prompt(prompt);
    for (const Token token : prompt) llama_sampler_accept(chain, token);
    int equal = 0;
    for (std::uint32_t step = 0; step < 200; ++step) {
      const auto logits = random_logits(step, 2);
      std::vector<llama_token_data> data;
      for (std::size_t i = 0; i < logits.size(); ++i) data.push_back({static_cast<Token>(i), logits[i], 0});
      llama_token_data_array all{data.data(), data.size(), -1, false};
      llama_sampler_apply(chain, &all);
      const Token expected = all.data[all.selected].id;
      equal += sampler.sample(logits) == expected ? 1 : 0;
      sampler.accept(expected);
      llama_sampler_accept(chain, expected);
    }
    llama_sampler_free(chain);
    if (top_k == 1) EXPECT_GT(equal, 190);  // the one candidate needs no random number
    if (top_k != 1) EXPECT_EQ(equal, 200) << top_k;
  }
}

TEST(Sampler, TruncationsKeepToTheirSet) {
  const auto logits = random_logits(3);
  std::vector<Token> order(logits.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<Token>(i);
  std::ranges::sort(order, [&](Token a, Token b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  SamplingParams params;
  params.top_p = 1;
  params.min_p = 0;
  params.top_k = 3;
  params.temperature = 50;
  params.seed = 1;
  Sampler sampler = make(params);
  std::set<Token> seen;
  for (int i = 0; i < 300; ++i) seen.insert(*sampler.sample(logits));
  EXPECT_EQ(seen, (std::set<Token>(order.begin(), order.begin() + 3)));

  params.top_k = 0;
  params.top_p = 0;
  Sampler nucleus = make(params);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(nucleus.sample(logits), order[0]);
  params.top_p = 1;
  params.min_p = 1;
  Sampler most = make(params);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(most.sample(logits), order[0]);
}

TEST(Sampler, BiasBansAndForces) {
  const auto logits = random_logits(9);
  SamplingParams params = greedy();
  params.logit_bias = {{largest(logits), -infinity}};
  EXPECT_NE(make(params).sample(logits), largest(logits));
  params.logit_bias = {{77, 100.0F}};
  EXPECT_EQ(make(params).sample(logits), 77);
  params.temperature = 1;
  EXPECT_EQ(make(params).sample(logits), 77);
}

TEST(Sampler, PenaltiesLookBackAtPromptAndAnswerAndForget) {
  std::vector<float> logits(demo().info().vocabulary, 0.0F);
  logits[5] = 2.0F;
  logits[6] = 1.0F;
  SamplingParams params = greedy();
  params.presence_penalty = 1.5F;
  params.penalty_last_n = 2;
  Sampler sampler = make(params);
  EXPECT_EQ(sampler.sample(logits), 5);
  sampler.accept(5);
  EXPECT_EQ(sampler.sample(logits), 6);
  sampler.accept(100);
  EXPECT_EQ(sampler.sample(logits), 6);
  sampler.accept(101);  // 5 is out of sight
  EXPECT_EQ(sampler.sample(logits), 5);

  Sampler prompted = make(params);
  prompted.accept_prompt(std::vector<Token>{5, 9, 9});
  EXPECT_EQ(prompted.sample(logits), 5);
  prompted.accept_prompt(std::vector<Token>{9, 5});
  EXPECT_EQ(prompted.sample(logits), 6);
}

TEST(Sampler, IgnoreEosBansAllEndsOfGeneration) {
  std::vector<float> logits(demo().info().vocabulary, 0.0F);
  std::vector<Token> ends;
  for (Token token = 0; demo().valid(token); ++token) {
    if (demo().ends_generation(token)) ends.push_back(token);
  }
  ASSERT_FALSE(ends.empty());
  for (const Token token : ends) logits[static_cast<std::size_t>(token)] = 50;
  SamplingParams params = greedy();
  EXPECT_TRUE(demo().ends_generation(*make(params).sample(logits)));
  params.ignore_eos = true;
  EXPECT_FALSE(demo().ends_generation(*make(params).sample(logits)));
}

TEST(Sampler, HostileLogitsGiveSomeTokenOnEveryPath) {
  std::vector<std::vector<float>> rows;
  rows.emplace_back(demo().info().vocabulary, no_number);
  rows.emplace_back(demo().info().vocabulary, -infinity);
  rows.emplace_back(demo().info().vocabulary, infinity);
  rows.emplace_back(demo().info().vocabulary, 0.0F);
  rows.push_back(random_logits(1, 1e30F));
  rows.push_back(random_logits(2, 300));
  auto mixed = random_logits(3);
  for (std::size_t i = 0; i < mixed.size(); i += 3) mixed[i] = no_number;
  for (std::size_t i = 1; i < mixed.size(); i += 3) mixed[i] = -infinity;
  rows.push_back(mixed);
  mixed[8] = infinity;
  rows.push_back(mixed);
  std::vector<SamplingParams> all(8);
  all[0].temperature = 0;
  all[1].top_k = 0;
  all[2].typical_p = 0.5F;
  all[3].typical_p = 0.5F;
  all[3].top_k = 0;
  all[4].mirostat = 1;
  all[5].mirostat = 2;
  all[6].repeat_penalty = 1.5F;
  all[6].logit_bias = {{1, 5.0F}, {2, -infinity}};
  all[7].temperature = 1e-30F;
  for (SamplingParams params : all) {
    for (const std::string grammar : {"", "root ::= [a-z ]+"}) {
      params.grammar = grammar;
      params.seed = 1;
      Sampler sampler = make(params);
      for (const auto& row : rows) {
        const auto token = sampler.sample(row);
        if (!token) continue;
        EXPECT_TRUE(demo().valid(*token));
        const float logit = row[static_cast<std::size_t>(*token)];
        const bool possible = !std::isnan(logit) && logit != -infinity;
        const bool any = std::ranges::any_of(row, [](float each) { return !std::isnan(each) && each != -infinity; });
        EXPECT_EQ(possible, any);
        sampler.accept(*token);
      }
    }
  }
  Sampler sampler = make(greedy());
  EXPECT_EQ(sampler.sample(mixed), 8);
}

TEST(Sampler, MirostatDrawsAndIsDeterministic) {
  for (const std::int32_t version : {1, 2}) {
    SamplingParams params;
    params.mirostat = version;
    params.seed = 5;
    const auto tokens = run(make(params), 100, 2);
    EXPECT_EQ(tokens, run(make(params), 100, 2));
    EXPECT_GT(std::set<Token>(tokens.begin(), tokens.end()).size(), 10U);
  }
}

// Writes until the grammar ends it.
std::string write(const std::string& grammar, std::uint32_t seed, float temperature, int tokens_max = 200) {
  SamplingParams params;
  params.grammar = grammar;
  params.seed = seed;
  params.temperature = temperature;
  Sampler sampler = make(params);
  std::string text;
  for (int i = 0; i < tokens_max; ++i) {
    const auto token = sampler.sample(random_logits(seed * 1000 + static_cast<std::uint32_t>(i)));
    if (!token || demo().ends_generation(*token)) return text;
    sampler.accept(*token);
    text += demo().piece(*token, ParseSpecial::no);
  }
  return text + "...";
}

TEST(Sampler, WhatIsDrawnFollowsTheGrammar) {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    for (const float temperature : {0.0F, 1.0F}) {
      EXPECT_THAT(write("root ::= \"yes\" | \"no\"", seed, temperature), testing::AnyOf("yes", "no"));
      EXPECT_THAT(write("root ::= [0-9]{3} \"-\" [退送货]{2}", seed, temperature),
                  testing::MatchesRegex("[0-9][0-9][0-9]-(退|送|货)(退|送|货)"));
    }
  }
}

TEST(Sampler, AGrammarThatIsOverEndsTheAnswerEvenWithoutEnds) {
  SamplingParams params = greedy();
  params.grammar = "root ::= \"a\"";
  params.ignore_eos = true;
  Sampler sampler = make(params);
  const auto first = sampler.sample(random_logits(1));
  ASSERT_TRUE(first);
  EXPECT_EQ(demo().piece(*first, ParseSpecial::no), "a");
  sampler.accept(*first);
  EXPECT_FALSE(sampler.sample(random_logits(2)));
}

TEST(Sampler, ATokenThatTheGrammarForbidsEndsTheAnswerAndNotTheProcess) {
  for (const bool end : {false, true}) {
    SamplingParams params = greedy();
    params.grammar = "root ::= \"a\"{5}";
    Sampler sampler = make(params);
    Token token = demo().tokenize("z", AddSpecial::no, ParseSpecial::no)->front();
    for (Token each = 0; end && demo().valid(each); ++each) {
      if (demo().ends_generation(each)) token = each;
    }
    sampler.accept(token);
    EXPECT_FALSE(sampler.sample(random_logits(1)));
    sampler.accept(token);
  }
}

// Each further a doubles the ways in which this can be read.
TEST(Sampler, AGrammarThatGetsTooAmbiguousEndsTheAnswer) {
  SamplingParams params = greedy();
  params.grammar = "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"a\"";
  Sampler sampler = make(params);
  std::vector<float> logits(demo().info().vocabulary, 0.0F);
  logits[static_cast<std::size_t>(demo().tokenize("a", AddSpecial::no, ParseSpecial::no)->front())] = 9;
  int tokens = 0;
  while (const auto token = sampler.sample(logits)) {
    sampler.accept(*token);
    ASSERT_LT(++tokens, 60);
  }
  EXPECT_GT(tokens, 8);
}

TEST(Sampler, AGrammarThatNeedsATokenTheBiasBansEndsTheAnswer) {
  SamplingParams params;
  params.grammar = "root ::= \"a\"+";
  for (Token token = 0; demo().valid(token); ++token) {
    const std::string piece = demo().piece(token, ParseSpecial::no);
    if (!piece.empty() && piece.find_first_not_of('a') == std::string::npos)
      params.logit_bias.emplace_back(token, -infinity);
  }
  EXPECT_FALSE(make(params).sample(random_logits(1)));
}

TEST(Sampler, ValidateNamesTheFieldAndTheValue) {
  const auto message = [](auto change) {
    SamplingParams params;
    change(params);
    const Status status = validate(params, demo());
    if (status) return std::string();
    EXPECT_EQ(status.error().code, ErrorCode::invalid_argument);
    EXPECT_EQ(status.error().message.find('\n'), std::string::npos);
    return status.error().message;
  };
  using testing::HasSubstr;
  EXPECT_EQ(message([](SamplingParams&) {}), "");
  EXPECT_THAT(message([](SamplingParams& params) { params.temperature = -1; }), HasSubstr("temperature is -1"));
  EXPECT_THAT(message([](SamplingParams& params) { params.temperature = no_number; }), HasSubstr("temperature is nan"));
  EXPECT_THAT(message([](SamplingParams& params) { params.top_p = 1.5F; }), HasSubstr("top_p is 1.5"));
  EXPECT_THAT(message([](SamplingParams& params) { params.top_k = -2; }), HasSubstr("top_k is -2"));
  EXPECT_THAT(message([](SamplingParams& params) { params.mirostat = 3; }), HasSubstr("mirostat is 3"));
  EXPECT_THAT(message([](SamplingParams& params) { params.logit_bias = {{999999, 1}}; }),
              HasSubstr("999999 is no token"));
  EXPECT_THAT(message([](SamplingParams& params) { params.logit_bias = {{-1, 1}}; }), HasSubstr("-1 is no token"));
  EXPECT_THAT(message([](SamplingParams& params) { params.logit_bias = {{1, no_number}}; }),
              HasSubstr("bias of token 1"));
  EXPECT_THAT(message([](SamplingParams& params) { params.logit_bias = {{1, infinity}}; }),
              HasSubstr("bias of token 1"));
  EXPECT_EQ(message([](SamplingParams& params) { params.logit_bias = {{1, -infinity}}; }), "");
  EXPECT_THAT(message([](SamplingParams& params) { params.grammar = "root ::= nothere"; }),
              HasSubstr("no rule `nothere`"));
  EXPECT_THAT(message([](SamplingParams& params) { params.grammar = "root ::= <no such token>"; }),
              HasSubstr("grammar"));
}

TEST(Sampler, LogprobsAreTheLogSoftmaxOfTheRawLogits) {
  const auto logits = random_logits(4);
  const Token chosen = 17;
  const TokenLogprob result = Sampler::logprob(demo(), logits, chosen, 5);
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
  EXPECT_EQ(result.chosen.token, chosen);
  EXPECT_NEAR(result.chosen.logprob, logits[17] - std::log(sum), 1e-4);
  ASSERT_EQ(result.top.size(), 5U);
  EXPECT_EQ(result.top[0].token, largest(logits));
  for (std::size_t i = 1; i < 5; ++i) EXPECT_GE(result.top[i - 1].logprob, result.top[i].logprob);
  EXPECT_TRUE(Sampler::logprob(demo(), logits, chosen, 0).top.empty());

  auto broken = logits;
  broken[17] = -infinity;
  broken[18] = no_number;
  broken[19] = infinity;
  for (const auto& row :
       {broken, std::vector<float>(logits.size(), no_number), std::vector<float>(logits.size(), -infinity)}) {
    const TokenLogprob finite = Sampler::logprob(demo(), row, chosen, 3);
    EXPECT_TRUE(std::isfinite(finite.chosen.logprob));
    EXPECT_EQ(finite.top.size(), 3U);
    for (const TokenAlternative& each : finite.top) EXPECT_TRUE(std::isfinite(each.logprob));
  }
}

}  // namespace
}  // namespace caravan::engine
