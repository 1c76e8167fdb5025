// Sharing holds for every class of model (I1): a shared prefix has the same KV bytes and gives the same logits as one
// that was computed for the sequence alone, with equal chunk bounds; where a model's memory cannot be cut, nothing is
// shared.

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_fixture.h"
#include "engine/pool_fixture.h"

namespace caravan::engine {
namespace {

struct Case {
  std::string shape;
  KvLayout layout = KvLayout::unified;
};
std::string name_of(const testing::TestParamInfo<Case>& info) {
  std::string name = info.param.shape + (info.param.layout == KvLayout::streams ? "_streams" : "_unified");
  std::ranges::replace(name, '-', '_');
  return name;
}

class Sharing : public testing::TestWithParam<Case> {
 protected:
  [[nodiscard]] const Model& model() const { return model_of(GetParam().shape); }
  [[nodiscard]] EngineOptions options() const { return options_for(GetParam().layout); }
  [[nodiscard]] bool at_end_only() const { return model().info().recurrent || model().info().hybrid; }
};

TEST_P(Sharing, ASharedPrefixHasTheSameBytesAndGivesTheSameLogits) {
  const auto prefix = prompt(1, 2 * chunk);
  const auto question = prompt(2, 40);
  Pool alone(model(), options());
  alone.decode(1, prefix);
  const auto expected = alone.decode(1, question);

  Pool shared(model(), options());
  shared.decode(0, prefix);
  const auto prefix_bytes = shared.bytes(0);
  ASSERT_EQ(shared->shareable(0, 2 * chunk), 2 * chunk);
  ASSERT_TRUE(shared->share(0, 1, 2 * chunk));
  const auto got = shared.decode(1, question);
  EXPECT_EQ(furthest(got, expected), 0.0);
  EXPECT_TRUE(shared.bytes(0) == prefix_bytes);  // the source is as it was
  shared->clear(0);                              // a state names all who hold its cells
  EXPECT_TRUE(shared.bytes(1) == alone.bytes(1));

  // The negative control: the logits do depend on the prefix.
  Pool other(model(), options());
  other.decode(0, prompt(3, 2 * chunk));
  ASSERT_TRUE(other->share(0, 1, 2 * chunk));
  EXPECT_GT(furthest(other.decode(1, question), expected), 1e-3);
}

TEST_P(Sharing, APrefixIsCutWhereMemoryCanBeCut) {
  const auto prefix = prompt(1, 2 * chunk);
  const auto question = prompt(2, 40);
  Pool alone(model(), options());
  alone.decode(0, prefix);
  const auto expected = alone.decode(0, question);

  Pool shared(model(), options());
  shared.decode(0, prefix);
  shared.decode(0, prompt(4, 300));  // the source went on, beyond any window
  const std::uint32_t length = shared->shareable(0, 2 * chunk);
  if (at_end_only() || (model().info().sliding_window > 0 && shared->cut() == Cut::window)) {
    EXPECT_EQ(length, 0U);
    return;
  }
  ASSERT_EQ(length, 2 * chunk);
  ASSERT_TRUE(shared->share(0, 1, length));
  EXPECT_LT(furthest(shared.decode(1, question), expected), 5e-3);  // cells lie elsewhere: low bits
}

TEST_P(Sharing, TwoAtOncePrefillTheirPrefixOnce) {
  HandDrivenEngine engine(model(), options());
  ASSERT_FALSE(engine.error()) << engine.error()->message;
  const auto prefix = prompt(1, 4 * chunk);
  std::vector<std::shared_ptr<Answer>> answers;
  for (std::uint32_t i = 0; i < 3; ++i) {
    Request request = HandDrivenEngine::greedy(prefix + prompt(10 + i, 30), 4);
    request.sampling.ignore_eos = true;
    answers.push_back(engine.submit(std::move(request)));
  }
  engine.run();
  for (const auto& answer : answers) ASSERT_TRUE(answer->account) << (answer->error ? answer->error->message : "");
  EXPECT_EQ(answers[0]->account->cached_total(), 0U);
  EXPECT_EQ(answers[1]->account->cached_total(), 4 * chunk);
  EXPECT_EQ(answers[2]->account->cached_total(), 4 * chunk);
}

TEST_P(Sharing, ANextTurnContinuesAndAnEditIsSharedOrRefusedHonestly) {
  HandDrivenEngine engine(model(), options());
  ASSERT_FALSE(engine.error()) << engine.error()->message;
  const auto ask = [&](std::vector<Token> tokens) {
    Request request = HandDrivenEngine::greedy(std::move(tokens), 5);
    request.sampling.ignore_eos = true;
    request.top_logprobs = 0;
    return engine.ask(std::move(request));
  };
  auto chat = prompt(1, 200);
  const auto first = ask(chat);
  ASSERT_TRUE(first->account);
  // What was generated, but for the last token, which was never decoded.
  for (std::size_t i = 0; i + 1 < first->logprobs.size(); ++i) chat.push_back(first->logprobs[i].chosen.token);
  const auto next = ask(chat + prompt(2, 30));
  ASSERT_TRUE(next->account);
  EXPECT_EQ(next->account->cached_total(), chat.size());

  const auto edited = ask(prompt(1, 100) + prompt(3, 50));
  ASSERT_TRUE(edited->account);
  if (at_end_only() || model().info().sliding_window > 0) {
    if (edited->account->cached_total() == 0) {
      EXPECT_EQ(edited->account->miss, MissReason::unsupported);
      EXPECT_THAT(engine.status().sharing_note, testing::Not(testing::IsEmpty()));
    }
  } else {
    EXPECT_EQ(edited->account->cached_total(), 100U);
    EXPECT_EQ(edited->account->miss, MissReason::diverged);
  }
}

INSTANTIATE_TEST_SUITE_P(Classes, Sharing,
                         testing::Values(Case{"dense", KvLayout::unified}, Case{"dense", KvLayout::streams},
                                         Case{"qknorm", KvLayout::unified}, Case{"iswa", KvLayout::unified},
                                         Case{"iswa", KvLayout::streams}, Case{"mla", KvLayout::unified},
                                         Case{"mla", KvLayout::streams}, Case{"recurrent", KvLayout::automatic},
                                         Case{"hybrid", KvLayout::unified}, Case{"hybrid", KvLayout::streams},
                                         Case{"hybrid-conv", KvLayout::unified}),
                         name_of);

TEST(Classes, AnEncoderGivesEmbeddingsOnly) {
  HandDrivenEngine engine(model_of("encoder"), options_for(KvLayout::automatic));
  ASSERT_FALSE(engine.error()) << engine.error()->message;
  const auto chat = engine.ask(HandDrivenEngine::greedy(prompt(1, 20), 4));
  ASSERT_TRUE(chat->error);
  EXPECT_EQ(chat->error->code, ErrorCode::invalid_argument);
  Request request = HandDrivenEngine::greedy(prompt(1, 20), 0);
  request.embedding = true;
  const auto embedded = engine.ask(std::move(request));
  ASSERT_FALSE(embedded->error) << embedded->error->message;
  EXPECT_EQ(embedded->embedding.size(), 128U);
}

// Case 9: a shift that is unsafe is refused at the start, with the reason.
TEST(Classes, AnUnsafeContextShiftIsRefusedAtTheStart) {
  for (const char* shape : {"iswa", "mla", "recurrent", "hybrid"}) {
    EngineOptions options = options_for(KvLayout::automatic);
    options.context_shift = true;
    HandDrivenEngine engine(model_of(shape), options);
    ASSERT_TRUE(engine.error()) << shape;
    EXPECT_EQ(engine.error()->code, ErrorCode::unsupported) << shape;
    EXPECT_THAT(engine.error()->message, testing::HasSubstr("--context-shift")) << shape;
  }
  EngineOptions options = options_for(KvLayout::automatic);
  options.context_shift = true;
  EXPECT_FALSE(HandDrivenEngine(model_of("dense"), options).error());
  options.type_k = "q8_0";
  EXPECT_TRUE(HandDrivenEngine(model_of("dense"), options).error());
}

// Case 18: every K type x V type x flash attention starts, or is refused in one line; never a signal.
TEST(Classes, EveryKvTypeStartsOrIsRefusedInOneLine) {
  int started = 0;
  for (const char* k : {"f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl", "nonsense"}) {
    for (const char* v : {"f32", "f16", "bf16", "q8_0", "q4_0", "iq4_nl"}) {
      for (const FlashAttention flash : {FlashAttention::automatic, FlashAttention::on, FlashAttention::off}) {
        EngineOptions options = options_for(KvLayout::automatic);
        options.kv_cells = 512;
        options.type_k = k;
        options.type_v = v;
        options.flash_attention = flash;
        HandDrivenEngine engine(model_of("dense"), options);
        if (engine.error()) {
          EXPECT_EQ(engine.error()->message.find('\n'), std::string::npos) << engine.error()->message;
          continue;
        }
        ++started;
        const auto answer = engine.ask(HandDrivenEngine::greedy(prompt(1, 70), 3));
        EXPECT_TRUE(answer->account) << k << " " << v;
      }
    }
  }
  EXPECT_GT(started, 100);
}

}  // namespace
}  // namespace caravan::engine
