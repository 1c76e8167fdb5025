#include "engine/engine.h"

#include <numeric>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine_fixture.h"

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

EngineOptions small(std::uint32_t cells = 2048, std::uint32_t parallel = 4) {
  EngineOptions options;
  options.kv_cells = cells;
  options.parallel = parallel;
  options.threads = 1;
  return options;
}

// `length` tokens that no other seed begins with.
std::vector<Token> prompt(std::uint32_t seed, std::size_t length) {
  std::mt19937 random(seed);
  std::vector<Token> tokens(length);
  for (Token& token : tokens) token = static_cast<Token>(random() % 2000);
  return tokens;
}

std::vector<Token> operator+(std::vector<Token> a, const std::vector<Token>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

Request endless(std::vector<Token> tokens, std::uint32_t max_tokens) {
  Request request = HandDrivenEngine::greedy(std::move(tokens), max_tokens);
  request.sampling.ignore_eos = true;
  return request;
}

const std::string system_text =
    "<|im_start|>system\nYou are Mira, the support assistant of Northridge Outdoor. Items can be returned within 42 "
    "days. "
    "Shipping costs €4.90. Orders over €75 ship free.<|im_end|>\n";

TEST(Engine, AnswersFromTheSystemPrompt) {
  HandDrivenEngine engine(demo(), small());
  const auto answer = engine.ask(HandDrivenEngine::greedy(
      engine.tokens(system_text + "<|im_start|>user\nWhat does shipping cost?<|im_end|>\n<|im_start|>assistant\n"),
      60));
  ASSERT_TRUE(answer->account) << (answer->error ? answer->error->message : "no end");
  EXPECT_THAT(answer->text[0], testing::HasSubstr("4.90"));
  EXPECT_EQ(answer->ends[0].reason, FinishReason::stop);
  EXPECT_EQ(answer->account->cached_total(), 0U);
  EXPECT_EQ(answer->account->miss, MissReason::cold);
}

TEST(Engine, TheSecondConversationSharesTheSystemPrompt) {
  HandDrivenEngine engine(demo(), small());
  engine.ask(HandDrivenEngine::greedy(
      engine.tokens(system_text + "<|im_start|>user\nWhat does shipping cost?<|im_end|>\n<|im_start|>assistant\n"),
      60));
  const auto tokens = engine.tokens(
      system_text + "<|im_start|>user\nHow long can I return an item?<|im_end|>\n<|im_start|>assistant\n");
  const auto second = engine.ask(HandDrivenEngine::greedy(tokens, 60));
  ASSERT_TRUE(second->account);
  const auto shared = static_cast<std::uint32_t>(engine.tokens(system_text).size());
  EXPECT_GE(second->account->cached_total(), shared);
  EXPECT_EQ(second->account->cached_total() + second->account->computed, tokens.size());
  EXPECT_EQ(second->account->miss, MissReason::diverged);
  EXPECT_THAT(second->text[0], testing::HasSubstr("42"));
}

TEST(Engine, WithoutTheCacheNothingIsShared) {
  EngineOptions options = small();
  options.kv_cache = false;
  HandDrivenEngine engine(demo(), options);
  for (int i = 0; i < 2; ++i) {
    const auto answer = engine.ask(HandDrivenEngine::greedy(prompt(1, 200), 4));
    ASSERT_TRUE(answer->account);
    EXPECT_EQ(answer->account->cached_total(), 0U);
    EXPECT_EQ(answer->account->miss, MissReason::disabled);
  }
  EXPECT_EQ(engine.status().cells_used, 0U);
}

// Case 1
TEST(Engine, APromptIsAHitAfterFiftyOthersOnOneSequence) {
  HandDrivenEngine engine(demo(), small(4096, 1));
  engine.ask(endless(prompt(1, 512), 4));
  for (std::uint32_t i = 0; i < 50; ++i) engine.ask(endless(prompt(100 + i, 20), 4));
  const auto again = engine.ask(endless(prompt(1, 512), 4));
  ASSERT_TRUE(again->account);
  EXPECT_EQ(again->account->cached_total(), 511U);
  EXPECT_EQ(again->account->miss, MissReason::none);
}

// Case 2
TEST(Engine, AtLeastOneTokenIsEvaluatedAtEveryLength) {
  for (const std::size_t length : {1U, 2U, 63U, 64U, 65U, 128U}) {
    HandDrivenEngine engine(demo(), small());
    for (int i = 0; i < 3; ++i) {
      const auto answer = engine.ask(endless(prompt(7, length), 3));
      ASSERT_TRUE(answer->account) << length;
      EXPECT_LE(answer->account->cached_total(), length - 1);
      EXPECT_EQ(answer->account->computed, i == 0 ? length : 1U) << length;
      EXPECT_EQ(answer->ends[0].completion_tokens, 3U);
    }
  }
}

// Case 3
TEST(Engine, ALiveSequenceIsSharedAndUnchanged) {
  HandDrivenEngine alone(demo(), small());
  const auto expected = alone.ask(endless(prompt(3, 500), 40))->text[0];

  HandDrivenEngine engine(demo(), small());
  const auto first = engine.submit(endless(prompt(3, 500), 40));
  for (int i = 0; i < 10; ++i) engine->step();
  ASSERT_FALSE(first->done);
  const auto second = engine.ask(endless(prompt(3, 500) + prompt(4, 30), 5));
  ASSERT_TRUE(second->account);
  EXPECT_GE(second->account->cached_total(), 500U);
  EXPECT_EQ(first->text[0], expected);
}

// Case 4
TEST(Engine, TenArrivalsAtOncePrefillTheirPrefixOnce) {
  HandDrivenEngine engine(demo(), small(4096, 10));
  std::vector<std::shared_ptr<Answer>> answers;
  for (std::uint32_t user = 0; user < 10; ++user)
    answers.push_back(engine.submit(endless(prompt(5, 1000) + prompt(50 + user, 32), 4)));
  engine.run();
  std::uint64_t computed = 0;
  for (const auto& answer : answers) {
    ASSERT_TRUE(answer->account);
    computed += answer->account->computed;
  }
  EXPECT_EQ(computed, 1000U + 10 * 32);
  EXPECT_EQ(engine.status().prompt_tokens_computed, computed);
  EXPECT_LE(engine.status().cells_peak, 1000U + 10 * (32 + 4));
}

// Case 8
TEST(Engine, AFailingMemoryOperationCostsARecomputeOnly) {
  HandDrivenEngine clean(demo(), small());
  clean.ask(endless(prompt(1, 300), 4));
  const auto expected = clean.ask(endless(prompt(1, 300) + prompt(2, 20), 8));
  for (const std::string_view operation : {"decode", "share", "trim"}) {
    for (int fail_at = 1; fail_at <= 4; ++fail_at) {
      EngineOptions options = small();
      int calls = 0;
      options.inject_fault = [&](std::string_view name) { return name == operation && ++calls == fail_at; };
      HandDrivenEngine engine(demo(), options);
      engine.ask(endless(prompt(1, 300), 4));
      const auto answer = engine.ask(endless(prompt(1, 300) + prompt(2, 20), 8));
      ASSERT_TRUE(answer->account) << operation << " " << (answer->error ? answer->error->message : "");
      EXPECT_EQ(answer->text[0], expected->text[0]) << operation << " " << fail_at;
      if (calls >= fail_at) {
        EXPECT_GT(engine.status().recoveries, 0U) << operation << " " << fail_at;
      }
    }
  }
}

// Case 9
TEST(Engine, TheContextEndsWithLengthOrIsShifted) {
  HandDrivenEngine plain(demo(), small(512, 1));
  const auto ended = plain.ask(endless(prompt(1, 400), 1000));
  ASSERT_TRUE(ended->account);
  EXPECT_EQ(ended->ends[0].reason, FinishReason::length);
  EXPECT_EQ(ended->ends[0].completion_tokens, 512U - 400 + 1);

  EngineOptions options = small(512, 1);
  options.context_shift = true;
  options.keep = 16;
  HandDrivenEngine shifting(demo(), options);
  const auto shifted = shifting.ask(endless(prompt(1, 400), 1000));
  ASSERT_TRUE(shifted->account);
  EXPECT_EQ(shifted->ends[0].completion_tokens, 1000U);
  // What was shifted is not shared under the tokens it would be computed from.
  for (const SequenceStatus& each : shifting.status().sequences) EXPECT_LE(each.cells, 16U);
}

// Case 10
TEST(Engine, APromptLongerThanTheContextIsRefusedWithBothCounts) {
  HandDrivenEngine engine(demo(), small(512, 1));
  const auto over = engine.ask(endless(prompt(1, 513), 4));
  ASSERT_TRUE(over->error);
  EXPECT_EQ(over->error->code, ErrorCode::invalid_argument);
  EXPECT_THAT(over->error->message, testing::AllOf(testing::HasSubstr("513"), testing::HasSubstr("512")));
  const auto exact = engine.ask(endless(prompt(1, 512), 4));
  ASSERT_TRUE(exact->account);
  EXPECT_EQ(exact->ends[0].reason, FinishReason::length);
  EXPECT_EQ(exact->ends[0].completion_tokens, 1U);
}

// Case 13
TEST(Engine, StreamsTooLargeForThePoolAllFinishByPreemption) {
  HandDrivenEngine engine(demo(), small(768, 4));
  std::vector<std::shared_ptr<Answer>> answers;
  for (std::uint32_t i = 0; i < 4; ++i) answers.push_back(engine.submit(endless(prompt(10 + i, 100), 400)));
  engine.run();
  for (const auto& answer : answers) {
    ASSERT_TRUE(answer->account);
    EXPECT_EQ(answer->ends[0].completion_tokens, 400U);
    EXPECT_EQ(answer->after_end, 0U);
  }
  EXPECT_GT(engine.status().preemptions, 0U);
  const auto later = engine.ask(endless(prompt(99, 700), 4));
  EXPECT_TRUE(later->account);
}

// Preempted and continued, every token is still the one that its whole prefix, computed alone, makes most probable.
// (The text itself is no oracle: the shape of a batch changes the last bits of the logits.)
TEST(Engine, PreemptionChangesNoAnswer) {
  HandDrivenEngine engine(demo(), small(768, 4));
  std::vector<std::shared_ptr<Answer>> answers;
  for (std::uint32_t i = 0; i < 4; ++i) {
    Request request = endless(prompt(10 + i, 100), 150);
    request.top_logprobs = 1;
    answers.push_back(engine.submit(std::move(request)));
  }
  engine.run();
  ASSERT_GT(engine.status().preemptions, 0U);
  for (std::uint32_t i = 0; i < 4; ++i) {
    for (std::size_t at = 0; at < 150; at += 37) {
      HandDrivenEngine alone(demo(), small(768, 1));
      std::vector<Token> tokens = prompt(10 + i, 100);
      for (std::size_t k = 0; k < at; ++k) tokens.push_back(answers[i]->logprobs[k].chosen.token);
      Request request = endless(std::move(tokens), 1);
      request.top_logprobs = 1;
      const auto expected = alone.ask(std::move(request));
      EXPECT_NEAR(answers[i]->logprobs[at].chosen.logprob, expected->logprobs[0].top[0].logprob, 0.05)
          << i << " " << at;
    }
  }
}

// Case 14: while a long prompt is prefilled, another's stream gets a token in every step.
TEST(Engine, ALongPrefillDoesNotStallAStream) {
  EngineOptions options = small(4096, 2);
  options.ubatch_tokens = 128;
  HandDrivenEngine engine(demo(), options);
  const auto stream = engine.submit(endless(prompt(1, 20), 400));
  for (int i = 0; i < 5; ++i) engine->step();
  const auto long_one = engine.submit(endless(prompt(2, 3000), 4));
  int steps = 0;
  for (; !long_one->done && steps < 400; ++steps) {
    const std::uint64_t before = engine.status().tokens_generated;
    engine->step();
    std::this_thread::sleep_for(std::chrono::milliseconds(21));  // past the interval at which figures are published
    engine->step();
    EXPECT_GT(engine.status().tokens_generated, before) << "step " << steps;
  }
  EXPECT_TRUE(long_one->account);
  EXPECT_GE(2 * steps, 3000 / 128 - 1);  // in chunks, not at once
}

// Case 21
TEST(Engine, ACancelledPrefillLeavesItsChunks) {
  EngineOptions options = small(4096, 2);
  options.batch_tokens = 256;
  HandDrivenEngine engine(demo(), options);
  Request request = endless(prompt(1, 3000), 4);
  request.id = "gone";
  const auto gone = engine.submit(std::move(request));
  for (int i = 0; i < 6; ++i) engine->step();
  engine->cancel("gone");
  engine.run();
  ASSERT_TRUE(gone->error);
  EXPECT_EQ(gone->error->code, ErrorCode::cancelled);
  EXPECT_EQ(engine.status().running, 0U);
  const auto again = engine.ask(endless(prompt(1, 3000), 4));
  ASSERT_TRUE(again->account);
  EXPECT_GE(again->account->cached_total(), 1200U);
}

// Case 25
TEST(Engine, SeveralChoicesPrefillOnce) {
  HandDrivenEngine engine(demo(), small(2048, 4));
  Request request = endless(prompt(1, 300), 6);
  request.choices = 3;
  const auto answer = engine.ask(std::move(request));
  ASSERT_TRUE(answer->account);
  EXPECT_EQ(answer->ends.size(), 3U);
  EXPECT_EQ(answer->text[0], answer->text[1]);  // greedy
  EXPECT_EQ(answer->account->completion_tokens, 18U);
  EXPECT_LE(engine.status().prompt_tokens_computed, 300U + 2);
}

// Case 28
TEST(Engine, TheAccountTellsWhatAChangedFrontCost) {
  HandDrivenEngine engine(demo(), small());
  const auto chat = prompt(1, 400);
  engine.ask(endless(prompt(2, 5) + chat, 4));
  const auto answer = engine.ask(endless(prompt(3, 5) + chat + prompt(4, 10), 4));
  ASSERT_TRUE(answer->account);
  EXPECT_NE(answer->account->miss, MissReason::none);
  if (answer->account->miss == MissReason::diverged) EXPECT_EQ(answer->account->shared_after, 400U);
}

TEST(Engine, TheAccountTellsWhereItDivergedAndWhatWasSharedAfter) {
  HandDrivenEngine engine(demo(), small());
  const auto chat = prompt(1, 400);
  const auto role = prompt(9, 20);
  engine.ask(endless(role + prompt(2, 1) + chat, 4));
  const auto answer = engine.ask(endless(role + prompt(3, 1) + chat + prompt(4, 10), 4));
  ASSERT_TRUE(answer->account);
  EXPECT_EQ(answer->account->miss, MissReason::diverged);
  EXPECT_EQ(answer->account->miss_at, 20U);
  EXPECT_EQ(answer->account->shared_after, 400U);
}

// Case 29
TEST(Engine, SideRequestsDoNotPushOutTheChat) {
  HandDrivenEngine engine(demo(), small(1536, 1));
  auto chat = prompt(1, 300);
  for (std::uint32_t turn = 0; turn < 3; ++turn) {
    chat = chat + prompt(20 + turn, 60);
    engine.ask(endless(chat, 4));
    for (std::uint32_t i = 0; i < 3; ++i) engine.ask(endless(prompt(200 + 10 * turn + i, 30) + chat, 4));
  }
  const auto next = engine.ask(endless(chat + prompt(77, 20), 4));
  ASSERT_TRUE(next->account);
  EXPECT_GE(next->account->cached_total(), chat.size());
}

// I9 and fairness: 64 streams on 4 sequences, and cancels at random moments.
TEST(Engine, SixtyFourStreamsOnFourSequencesAllFinishInOrder) {
  HandDrivenEngine engine(demo(), small(2048, 4));
  std::vector<std::shared_ptr<Answer>> answers;
  for (std::uint32_t i = 0; i < 64; ++i) answers.push_back(engine.submit(endless(prompt(i, 30), 20)));
  engine.run();
  for (const auto& answer : answers) {
    ASSERT_TRUE(answer->account);
    EXPECT_EQ(answer->ends[0].completion_tokens, 20U);
    EXPECT_EQ(answer->after_end, 0U);
  }
}

TEST(Engine, TwoHundredRandomCancelsLeaveNothingBehind) {
  EngineOptions options = small(2048, 4);
  options.kv_cache = false;
  HandDrivenEngine engine(demo(), options);
  std::mt19937 random(1);
  std::vector<std::shared_ptr<Answer>> answers;
  std::vector<std::string> ids;
  for (std::uint32_t i = 0; i < 200; ++i) {
    Request request = endless(prompt(i % 7, 20 + i % 50), 1000);
    request.id = "c" + std::to_string(i);
    request.choices = 1 + i % 2;
    ids.push_back(request.id);
    answers.push_back(engine.submit(std::move(request)));
    for (std::uint32_t steps = random() % 3; steps > 0; --steps) engine->step();
    if (random() % 2 == 0) engine->cancel(ids[random() % ids.size()]);
  }
  for (const std::string& id : ids) engine->cancel(id);
  engine->step();
  engine->step();
  for (const auto& answer : answers) EXPECT_TRUE(answer->done);
  const EngineStatus status = engine.status();
  EXPECT_EQ(status.running, 0U);
  EXPECT_EQ(status.waiting, 0U);
  EXPECT_EQ(status.cells_used, 0U);
  EXPECT_TRUE(engine.ask(endless(prompt(1, 50), 4))->account);
}

TEST(Engine, AFullQueueSaysSo) {
  EngineOptions options = small();
  options.queue_max = 3;
  HandDrivenEngine engine(demo(), options);
  for (std::uint32_t i = 0; i < 3; ++i) engine.submit(endless(prompt(i, 20), 4));
  const auto refused = engine.submit(endless(prompt(9, 20), 4));
  ASSERT_TRUE(refused->error);
  EXPECT_EQ(refused->error->code, ErrorCode::exhausted);
  engine.run();
  EXPECT_TRUE(engine.ask(endless(prompt(9, 20), 4))->account);
}

// I4
TEST(Engine, IsolatedTenantsShareNothing) {
  EngineOptions options = small();
  options.tenant_isolation = true;
  HandDrivenEngine engine(demo(), options);
  const auto as = [&](const std::string& tenant) {
    Request request = endless(prompt(1, 300), 4);
    request.tenant = tenant;
    return engine.ask(std::move(request))->account->cached_total();
  };
  EXPECT_EQ(as("a"), 0U);
  EXPECT_EQ(as("b"), 0U);
  EXPECT_EQ(as("a"), 299U);
}

TEST(Engine, StreamsLayoutSharesByCopy) {
  EngineOptions options = small(2048, 4);
  options.layout = KvLayout::streams;
  HandDrivenEngine engine(demo(), options);
  EXPECT_EQ(engine.status().layout, KvLayout::streams);
  engine.ask(endless(prompt(1, 300) + prompt(2, 10), 8));
  const auto asked = [](const std::vector<Token>& front) {
    Request request = endless(front + prompt(3, 10), 1);
    request.top_logprobs = 5;
    return request;
  };
  const auto second = engine.ask(asked(prompt(1, 300)));
  ASSERT_TRUE(second->account);
  EXPECT_EQ(second->account->cached_total(), 300U);
  // Other chunk bounds move the low bits, so the first distribution is compared, not a text that chance may tip over.
  HandDrivenEngine alone(demo(), options);
  const auto expected = alone.ask(asked(prompt(1, 300)))->logprobs.at(0);
  EXPECT_NEAR(second->logprobs.at(0).top.at(0).logprob, expected.top.at(0).logprob, 0.1);
  EXPECT_EQ(second->logprobs.at(0).top.at(0).token, expected.top.at(0).token);
  const auto other = alone.ask(asked(prompt(4, 300)))->logprobs.at(0);
  EXPECT_TRUE(other.top.at(0).token != expected.top.at(0).token ||
              std::abs(other.top.at(0).logprob - expected.top.at(0).logprob) > 0.2);
}

TEST(Engine, EmbedsInChunksAsInOne) {
  EngineOptions options = small();
  options.batch_tokens = options.ubatch_tokens = 64;
  HandDrivenEngine chunked(demo(), options);
  HandDrivenEngine whole(demo(), small());
  Request request = endless(prompt(1, 200), 0);
  request.embedding = true;
  const auto a = chunked.ask(request);
  const auto b = whole.ask(request);
  ASSERT_EQ(a->embedding.size(), 192U);
  const double dot = std::inner_product(a->embedding.begin(), a->embedding.end(), b->embedding.begin(), 0.0);
  EXPECT_NEAR(dot, 1.0, 1e-3);
  request.prompt = prompt(2, 200);
  const auto other = whole.ask(request);
  EXPECT_LT(std::inner_product(other->embedding.begin(), other->embedding.end(), b->embedding.begin(), 0.0), 0.999);
}

TEST(Engine, LogprobsComeWithEveryTokenAlsoAfterAFullHit) {
  HandDrivenEngine engine(demo(), small());
  for (int i = 0; i < 2; ++i) {
    Request request = endless(prompt(1, 100), 5);
    request.top_logprobs = 3;
    const auto answer = engine.ask(std::move(request));
    ASSERT_EQ(answer->logprobs.size(), 5U);
    EXPECT_EQ(answer->logprobs[0].top.size(), 3U);
    EXPECT_EQ(answer->logprobs[0].top[0].token, answer->logprobs[0].chosen.token);
    EXPECT_LE(answer->logprobs[0].chosen.logprob, 0.0F);
  }
}

}  // namespace
}  // namespace caravan::engine
