#include "cli/bench/scenario.h"

#include <set>

#include <gtest/gtest.h>

namespace caravan::cli::bench {
namespace {

TEST(Scenario, SharedPrefixHasOneSystemPromptAndQuestionsOfTheirOwn) {
  const Scenario scenario = make_scenario({.users = 10, .prefix_tokens = 2000, .waves = 2, .seed = 7}, 0);
  EXPECT_TRUE(scenario.history);
  std::set<std::uint64_t> systems;
  std::set<std::uint64_t> questions;
  for (const auto& user : scenario.users) {
    ASSERT_EQ(user.waves.size(), 2U);
    for (const auto& wave : user.waves) {
      ASSERT_EQ(wave.size(), 1U);
      EXPECT_EQ(wave[0].system.tokens, 2000U);
      EXPECT_EQ(wave[0].question.tokens, 64U);
      systems.insert(wave[0].system.seed);
      questions.insert(wave[0].question.seed);
    }
  }
  EXPECT_EQ(systems.size(), 1U);
  EXPECT_EQ(questions.size(), 20U);
  EXPECT_EQ(texts_of(scenario).size(), 21U);
}

TEST(Scenario, ARepeatedWaveAsksTheSame) {
  const Scenario scenario = make_scenario({.users = 3, .waves = 3, .wave_kind = WaveKind::repeat}, 0);
  for (const auto& user : scenario.users) {
    EXPECT_EQ(user.waves[0], user.waves[1]);
    EXPECT_EQ(user.waves[0], user.waves[2]);
  }
  EXPECT_NE(scenario.users[0].waves[0], scenario.users[1].waves[0]);
}

TEST(Scenario, LongDocKeepsAUsersDocumentAndNoHistory) {
  const Scenario scenario = make_scenario({.kind = ScenarioKind::long_doc, .users = 4, .waves = 2}, 0);
  EXPECT_FALSE(scenario.history);
  std::set<std::uint64_t> documents;
  for (const auto& user : scenario.users) {
    const auto document = user.waves[0][0].system;
    for (const auto& wave : user.waves) {
      ASSERT_EQ(wave.size(), 3U);
      for (const auto& turn : wave) EXPECT_EQ(turn.system, document);
    }
    documents.insert(document.seed);
  }
  EXPECT_EQ(documents.size(), 4U);
}

TEST(Scenario, AllUniqueRepeatsNothing) {
  const Scenario scenario = make_scenario({.kind = ScenarioKind::all_unique, .users = 5, .turns = 4}, 0);
  EXPECT_EQ(texts_of(scenario).size(), 40U);
}

TEST(Scenario, TheSeedDecidesAndRoundsDiffer) {
  const ScenarioOptions options{.users = 3, .seed = 42};
  EXPECT_EQ(texts_of(make_scenario(options, 0)), texts_of(make_scenario(options, 0)));
  std::set<std::uint64_t> seeds;
  for (std::uint32_t round = 0; round < 5; ++round) {
    for (const auto& text : texts_of(make_scenario(options, round))) seeds.insert(text.seed);
  }
  EXPECT_EQ(seeds.size(), 5U * 4U);
  EXPECT_NE(texts_of(make_scenario(options, 0)), texts_of(make_scenario({.users = 3, .seed = 43}, 0)));
}

TEST(Scenario, OpenLoopArrivesAtItsRate) {
  const Scenario scenario = make_scenario({.users = 4000, .rate = 50}, 0);
  Duration last{};
  for (const auto& user : scenario.users) {
    EXPECT_GE(user.arrivals[0], last);
    last = user.arrivals[0];
  }
  EXPECT_NEAR(seconds(last), 80.0, 6.0);
  EXPECT_EQ(make_scenario({.users = 3}, 0).users[2].arrivals[0], Duration{}) << "closed loop: at once";
}

TEST(Dice, AreFair) {
  Dice dice(1);
  std::vector<int> counts(6);
  for (int i = 0; i < 60'000; ++i) ++counts[dice.below(6)];
  for (const int count : counts) EXPECT_NEAR(count, 10'000, 500);
}

}  // namespace
}  // namespace caravan::cli::bench
