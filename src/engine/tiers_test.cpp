// Blocks on their way between the device and the tiers, with the real engine: what was evicted or computed by an engine
// that is gone comes back, for every class of model.

#include <memory>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_fixture.h"
#include "engine/pool_fixture.h"
#include "kv/cache.h"

namespace caravan::engine {
namespace {

using kv::TierKind;

struct Case {
  std::string name;
  std::string shape;
  KvLayout layout = KvLayout::unified;
};

std::unique_ptr<kv::Cache> host_only(std::uint64_t bytes = std::uint64_t{512} << 20U) {
  return std::make_unique<kv::Cache>(std::make_unique<kv::HostTier>(kv::HostTierOptions{.bytes_max = bytes}), nullptr,
                                     kv::Cache::Options{});
}

class Tiers : public testing::TestWithParam<Case> {
 protected:
  [[nodiscard]] const Model& model() const { return model_of(GetParam().shape); }
  [[nodiscard]] EngineOptions options() const {
    EngineOptions options = options_for(GetParam().layout);
    options.batch_tokens = options.ubatch_tokens = 256;
    return options;
  }
  static Request asking(std::vector<Token> tokens, std::uint32_t answer = 4) {
    Request request = HandDrivenEngine::greedy(std::move(tokens), answer);
    request.sampling.ignore_eos = true;
    request.top_logprobs = 3;
    return request;
  }
  [[nodiscard]] bool at_end() const { return model().info().recurrent || model().info().hybrid; }
};

TEST_P(Tiers, AnEngineThatComesAfterFindsWhatWasComputed) {
  const auto cache = host_only();
  const auto tokens = prompt(1, 5 * chunk + 16);
  std::vector<TokenAlternative> first;
  {
    HandDrivenEngine engine(model(), options(), {cache.get(), "digest"});
    ASSERT_FALSE(engine.error()) << engine.error()->message;
    ASSERT_EQ(engine.status().tiers_note, "");
    const auto answer = engine.ask(asking(tokens));
    ASSERT_TRUE(answer->account);
    EXPECT_EQ(answer->account->cached_total(), 0U);
    first = answer->logprobs.at(0).top;
  }
  HandDrivenEngine engine(model(), options(), {cache.get(), "digest"});
  const auto again = engine.ask(asking(tokens));
  ASSERT_TRUE(again->account);
  EXPECT_EQ(again->account->cached_in(TierKind::host), 5 * chunk);
  EXPECT_EQ(again->account->computed, 16U);
  ASSERT_FALSE(again->logprobs.empty());
  EXPECT_EQ(again->logprobs.at(0).top.at(0).token, first.at(0).token);
  EXPECT_NEAR(again->logprobs.at(0).top.at(0).logprob, first.at(0).logprob, 0.1);
  EXPECT_EQ(engine.status().restores_failed, 0U);

  // The negative control: another model's blocks are not found (I2).
  HandDrivenEngine other(model(), options(), {cache.get(), "another digest"});
  EXPECT_EQ(other.ask(asking(tokens))->account->cached_total(), 0U);
  // Nor anything when the request forbids it.
  Request alone = asking(tokens);
  alone.cache_prompt = false;
  EXPECT_EQ(
      HandDrivenEngine(model(), options(), {cache.get(), "digest"}).ask(std::move(alone))->account->cached_total(), 0U);
}

// Case 1: with many others between.
TEST_P(Tiers, WhatTheDeviceEvictedComesBack) {
  const auto cache = host_only();
  EngineOptions small = options();
  if (GetParam().layout == KvLayout::unified) small.kv_cells = 1024;
  HandDrivenEngine engine(model(), small, {cache.get(), "digest"});
  ASSERT_FALSE(engine.error()) << engine.error()->message;
  const auto tokens = prompt(1, 6 * chunk);
  engine.ask(asking(tokens));
  for (std::uint32_t i = 0; i < 12; ++i) engine.ask(asking(prompt(100 + i, 5 * chunk + i)));
  const auto again = engine.ask(asking(tokens));
  ASSERT_TRUE(again->account);
  EXPECT_GE(again->account->cached_total(), 5 * chunk);
  EXPECT_GE(again->account->cached_in(TierKind::host), 4 * chunk);
  // What it goes on with is as good as what it came from.
  const auto longer = engine.ask(asking(tokens + prompt(2, 40)));
  EXPECT_GE(longer->account->cached_total(), 5 * chunk);
}

TEST_P(Tiers, OthersStreamOnWhileOneIsRestored) {
  const auto cache = host_only();
  {
    HandDrivenEngine engine(model(), options(), {cache.get(), "digest"});
    engine.ask(asking(prompt(1, 6 * chunk + 5)));
  }
  HandDrivenEngine engine(model(), options(), {cache.get(), "digest"});
  const auto streaming = engine.submit(asking(prompt(2, 20), 60));
  while (streaming->text.empty()) engine->step();
  const auto restored = engine.submit(asking(prompt(1, 6 * chunk + 5)));
  std::size_t before = streaming->logprobs.size();
  while (!restored->done) {
    engine->step();
    if (streaming->done) continue;
    EXPECT_EQ(streaming->logprobs.size(), before + 1) << "a step gave the stream no token";
    before = streaming->logprobs.size();
  }
  engine.run();
  EXPECT_EQ(restored->account->cached_in(TierKind::host), 6 * chunk);
}

TEST_P(Tiers, TwoWithOnePrefixRestoreItOnce) {
  const auto cache = host_only();
  const auto prefix = prompt(1, 4 * chunk);
  {
    HandDrivenEngine engine(model(), options(), {cache.get(), "digest"});
    engine.ask(asking(prefix + prompt(2, 10)));
  }
  HandDrivenEngine engine(model(), options(), {cache.get(), "digest"});
  const auto a = engine.submit(asking(prefix + prompt(3, 10)));
  const auto b = engine.submit(asking(prefix + prompt(4, 10)));
  while (!a->done || !b->done) engine->step();
  engine.run();
  EXPECT_EQ(a->account->cached_total(), 4 * chunk);
  EXPECT_EQ(b->account->cached_total(), 4 * chunk);
  if (GetParam().layout == KvLayout::unified && !at_end()) {
    EXPECT_EQ(b->account->cached_in(TierKind::device), 4 * chunk);
    EXPECT_EQ(engine.status().blocks_restored, 4U);
  }
}

TEST_P(Tiers, ACancelWhileRestoringFreesEverything) {
  const auto cache = host_only();
  {
    HandDrivenEngine engine(model(), options(), {cache.get(), "digest"});
    engine.ask(asking(prompt(1, 6 * chunk + 5)));
  }
  HandDrivenEngine engine(model(), options(), {cache.get(), "digest"});
  const auto streaming = engine.submit(asking(prompt(2, 20), 200));
  while (streaming->text.empty()) engine->step();
  Request request = asking(prompt(1, 6 * chunk + 5));
  request.id = "goes";
  const auto goes = engine.submit(std::move(request));
  engine->step();
  engine->step();
  engine->cancel("goes");
  engine->step();
  EXPECT_TRUE(goes->error);
  engine.run();
  EXPECT_TRUE(streaming->account);
  EXPECT_EQ(cache->stats().host->leased, 0U);
}

INSTANTIATE_TEST_SUITE_P(Classes, Tiers,
                         testing::Values(Case{"dense", "dense"}, Case{"dense_streams", "dense", KvLayout::streams},
                                         Case{"qknorm", "qknorm"}, Case{"iswa", "iswa"}, Case{"mla", "mla"},
                                         Case{"recurrent", "recurrent", KvLayout::automatic}, Case{"hybrid", "hybrid"},
                                         Case{"hybrid_streams", "hybrid", KvLayout::streams},
                                         Case{"hybrid_conv", "hybrid-conv"}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace caravan::engine
