#include "kv/cache.h"

#include <chrono>
#include <memory>
#include <optional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kv/cache_fixture.h"

namespace caravan::kv {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::SizeIs;

constexpr std::uint64_t host_bytes = std::uint64_t{4} << 20U;

class CacheTest : public testing::Test {
 protected:
  void SetUp() override { make({}); }
  void TearDown() override { store_->set({}); }  // nothing may wait for ever

  void make(const Cache::Options& options, bool with_host = true) {
    auto store = std::make_unique<FaultyTier>();
    store_ = store.get();
    auto host = with_host ? std::make_unique<HostTier>(HostTierOptions{.bytes_max = host_bytes}) : nullptr;
    cache_ = std::make_unique<Cache>(std::move(host), std::move(store), options);
  }

  bool capture(Token conversation, std::size_t block, bool checkpoint = false) {
    const FrameHeader header = kv_.header(conversation, block, checkpoint);
    if (!cache_->wants(header.id)) return false;
    auto slot = cache_->reserve(header.id, checkpoint ? kv_.space() : header.parent, kv_.frame_size());
    if (!slot) return false;
    Conversations::fill(slot->bytes().subspan(header_bytes(test_block_tokens)), header.id);
    cache_->commit(std::move(*slot), header);
    return true;
  }
  void capture_blocks(Token conversation, std::size_t blocks) {
    for (std::size_t block = 0; block < blocks; ++block) capture(conversation, block);
  }
  void store(Token conversation, std::size_t begin, std::size_t end, bool checkpoints = false) {
    for (std::size_t block = begin; block < end; ++block) {
      const auto frame = kv_.frame(conversation, block, checkpoints);
      ASSERT_TRUE(store_->put(kv_.header(conversation, block, checkpoints).id, frame));
    }
  }
  [[nodiscard]] bool stored(Token conversation, std::size_t blocks) {
    return store_->match(kv_.chain_of(conversation, blocks)) == blocks;
  }

  FetchRequest request(Token conversation, std::size_t blocks) {
    return {.namespace_id = kv_.space(),
            .chain = kv_.chain_of(conversation, blocks),
            .block_bytes = kv_.block_bytes(),
            .wake = waiting_.wake()};
  }
  // What came: "h0 h1 s2 S2" for blocks 0 and 1 from the host, 2 from the store, and the checkpoint at the end of 2.
  std::string come(const std::shared_ptr<Fetch>& fetch, Token conversation) {
    if (!fetch) return "nothing";
    pieces_.clear();
    if (!waiting_.finish(*fetch, pieces_)) return "it never finished";
    std::string text;
    for (const Fetch::Piece& piece : pieces_) {
      const bool same = std::ranges::equal(piece.lease.frame(), kv_.frame(conversation, piece.block, piece.checkpoint));
      if (!same) return "other bytes";
      const std::string tier(name_of(piece.lease.tier()), 1);
      text += (text.empty() ? "" : " ") + (piece.checkpoint ? std::string(tier == "h" ? "H" : "S") : tier) +
              std::to_string(piece.block);
    }
    return text;
  }
  std::string fetched(Token conversation, std::size_t blocks) {
    return come(cache_->fetch(request(conversation, blocks)), conversation);
  }

  // A turn of a session, whose prompt and answer are these blocks.
  void turn(std::string_view session, Token conversation, std::size_t blocks) {
    const auto ids = kv_.chain_of(conversation, blocks);
    cache_->end_turn(cache_->begin_turn("", session, ids), kv_.space(), ids);
  }
  template <class Condition>
  static bool soon(const Condition& condition) {
    const TimePoint deadline = Clock::now() + seconds(20);
    while (!condition() && Clock::now() < deadline) std::this_thread::sleep_for(milliseconds(1));
    return condition();
  }

  const Conversations kv_{2000};
  FaultyTier* store_ = nullptr;
  std::unique_ptr<Cache> cache_;
  Waiting waiting_;
  std::vector<Fetch::Piece> pieces_;
};

// ---- fetch ----

TEST_F(CacheTest, FetchesFromTheHostAtOnce) {
  capture_blocks(1, 4);
  store_->set({.stalled = true});  // and asks no store where the host has all
  EXPECT_EQ(fetched(1, 4), "h0 h1 h2 h3");
  EXPECT_EQ(cache_->stats().fetches, 1U);
  EXPECT_EQ(store_->gets(), 0U);
  EXPECT_FALSE(capture(1, 2));  // it is there
}

TEST_F(CacheTest, FetchFallsThroughToTheStore) {
  capture_blocks(1, 2);
  store(1, 0, 5);
  EXPECT_EQ(fetched(1, 6), "h0 h1 s2 s3 s4");
  EXPECT_EQ(fetched(2, 6), "h0 h1 s2");  // what the conversations have in common
  EXPECT_EQ(fetched(17, 6), "");         // nothing in common
  make({}, false);
  store(1, 0, 2);
  EXPECT_EQ(fetched(1, 6), "s0 s1");
  EXPECT_FALSE(capture(1, 3));  // without a host nothing is
}

TEST_F(CacheTest, FetchesWhatIsBeyondThatWhichTheSequenceHas) {
  capture_blocks(1, 4);
  FetchRequest from = request(1, 6);
  from.first = 2;
  from.least = 3;
  EXPECT_EQ(come(cache_->fetch(from), 1), "h2 h3");
  from.least = 5;  // not reached: of no use
  EXPECT_EQ(come(cache_->fetch(from), 1), "");
  from.first = 6;
  EXPECT_EQ(come(cache_->fetch(from), 1), "nothing");
  Cache host_alone(std::make_unique<HostTier>(HostTierOptions{.bytes_max = host_bytes}), nullptr, {});
  EXPECT_EQ(host_alone.fetch(request(1, 4)), nullptr);  // certain at once where there is no store
}

TEST_F(CacheTest, OfCheckpointsTheNewestThatIsReachedComes) {
  FetchRequest states = request(1, 6);
  states.blocks = false;
  states.checkpoints = true;
  EXPECT_EQ(come(cache_->fetch(states), 1), "");
  capture(1, 1, true);
  EXPECT_EQ(come(cache_->fetch(states), 1), "H1");
  store(1, 4, 5, true);
  EXPECT_EQ(come(cache_->fetch(states), 1), "S4");
  // A hybrid needs the blocks before it as well.
  FetchRequest both = request(1, 6);
  both.checkpoints = true;
  EXPECT_EQ(come(cache_->fetch(both), 1), "");
  capture_blocks(1, 3);
  EXPECT_EQ(come(cache_->fetch(both), 1), "h0 h1 H1");
  store(1, 3, 6);
  EXPECT_EQ(come(cache_->fetch(both), 1), "h0 h1 h2 s3 s4 S4");
}

TEST_F(CacheTest, AFailingStoreIsAMiss) {
  capture_blocks(1, 2);
  store(1, 2, 5);
  store_->set({.get = true});
  EXPECT_EQ(fetched(1, 5), "h0 h1");
  EXPECT_EQ(fetched(1, 2), "h0 h1");
  store_->set({});
  EXPECT_EQ(fetched(1, 5), "h0 h1 s2 s3 s4");
}

TEST_F(CacheTest, AFetchThatIsStoppedReleasesAllAndReadsNoFurther) {
  store(1, 0, 5);
  capture(1, 0);
  store_->set({.stalled = true});
  const auto fetch = cache_->fetch(request(1, 5));
  ASSERT_TRUE(fetch);
  ASSERT_TRUE(store_->wait_for_gets(1));
  EXPECT_FALSE(fetch->finished());
  EXPECT_EQ(cache_->stats().host->leased, 1U);
  fetch->stop();
  EXPECT_TRUE(fetch->finished());
  EXPECT_FALSE(fetch->take());
  EXPECT_EQ(cache_->stats().host->leased, 0U);
  store_->set({});
  EXPECT_EQ(fetched(1, 5), "h0 s1 s2 s3 s4");  // the stopped one is through
  EXPECT_EQ(store_->gets(), 1U + 4U);
}

TEST_F(CacheTest, WhoeverLetsGoOfAFetchIsNotWokenAnyMore) {
  store(1, 0, 5);
  store_->set({.stalled = true});
  auto fetch = cache_->fetch(request(1, 5));
  ASSERT_TRUE(store_->wait_for_gets(1));
  fetch.reset();
  store_->set({});
  EXPECT_EQ(fetched(20, 5), "");  // its own end may wake
  EXPECT_LE(waiting_.wakes(), 1U);
  EXPECT_EQ(store_->gets(), 1U);
}

TEST_F(CacheTest, EveryPieceAndTheEndWake) {
  store(1, 0, 3);
  EXPECT_EQ(fetched(1, 3), "s0 s1 s2");
  EXPECT_TRUE(soon([&] { return waiting_.wakes() == 3 + 1; }));
  capture_blocks(20, 2);
  EXPECT_EQ(fetched(20, 2), "h0 h1");
  EXPECT_TRUE(soon([&] { return waiting_.wakes() == 4 + 2 + 1; }));
}

// Ten that want the same at once: read once, and each has all of it.
TEST_F(CacheTest, WhatManyWantAtOnceIsReadOnce) {
  store(1, 0, 4);
  store_->set({.stalled = true});
  std::vector<std::shared_ptr<Fetch>> fetches;
  for (int i = 0; i < 10; ++i) fetches.push_back(cache_->fetch(request(1, 4)));
  store_->set({});
  ASSERT_TRUE(soon([&] { return waiting_.wakes() == 10U * (4 + 1); }));
  for (const auto& each : fetches) EXPECT_EQ(come(each, 1), "s0 s1 s2 s3");
  EXPECT_EQ(store_->gets(), 4U);
  pieces_.clear();
  EXPECT_EQ(fetched(1, 4), "s0 s1 s2 s3");  // once all are done, they are read again
  EXPECT_EQ(store_->gets(), 8U);
}

TEST_F(CacheTest, FetchesBeyondWhatTheReaderTakesAreComputed) {
  store(1, 0, 4);
  store_->set({.stalled = true});
  std::vector<std::shared_ptr<Fetch>> fetches;
  while (fetches.size() < 1000) {
    auto fetch = cache_->fetch(request(1, 4));
    if (!fetch) break;
    fetches.push_back(std::move(fetch));
    ASSERT_TRUE(store_->wait_for_gets(1));  // the reader has taken its first; the others wait
  }
  EXPECT_LT(fetches.size(), 1000U);
  capture(1, 0);
  EXPECT_EQ(fetched(1, 4), "h0");  // what the host has is had all the same
  store_->set({});
  for (const auto& each : fetches) EXPECT_NE(come(each, 1), "it never finished");
}

// ---- pricing (I5) ----

class Pricing : public CacheTest {
 protected:
  // Reads of a tenth of a second become known.
  void make_slow() {
    store(30, 0, 1);
    store_->set({.late = milliseconds(100)});
    ASSERT_EQ(fetched(30, 1), "s0");
  }
  std::string fetched_at(Token conversation, std::size_t blocks, double compute_seconds_per_block) {
    FetchRequest priced = request(conversation, blocks);
    priced.compute_seconds_per_block = compute_seconds_per_block;
    return come(cache_->fetch(std::move(priced)), conversation);
  }
};

TEST_F(Pricing, WhatIsComputedFasterIsNotFetched) {
  store(1, 0, 3);
  make_slow();
  EXPECT_EQ(fetched_at(1, 3, 0.01), "");
  EXPECT_EQ(cache_->stats().fetches_priced_out, 1U);
  EXPECT_EQ(store_->gets(), 1U);
  EXPECT_EQ(fetched_at(1, 3, 10), "s0 s1 s2");
  EXPECT_EQ(fetched_at(1, 3, 0), "s0 s1 s2");  // not known yet
  EXPECT_EQ(cache_->stats().fetches_priced_out, 1U);
}

TEST_F(Pricing, TheHostsShareIsTakenAllTheSame) {
  capture_blocks(1, 2);
  store(1, 2, 4);
  make_slow();
  EXPECT_EQ(fetched_at(1, 4, 0.01), "h0 h1");
  FetchRequest states = request(1, 4);
  states.blocks = false;
  states.checkpoints = true;
  states.compute_seconds_per_block = 0.01;
  capture(1, 0, true);
  store(1, 3, 4, true);
  EXPECT_EQ(come(cache_->fetch(states), 1), "H0");
  EXPECT_EQ(cache_->stats().fetches_priced_out, 2U);
}

// One checkpoint saves the computing of all the blocks before it.
TEST_F(Pricing, ACheckpointIsWorthAllTheBlocksBeforeIt) {
  make_slow();
  store(1, 9, 10, true);
  FetchRequest states = request(1, 10);
  states.blocks = false;
  states.checkpoints = true;
  states.compute_seconds_per_block = 0.05;
  EXPECT_EQ(come(cache_->fetch(states), 1), "S9");
  states.compute_seconds_per_block = 0.005;
  EXPECT_EQ(come(cache_->fetch(states), 1), "");
}

TEST_F(Pricing, AReadThatFailsLateCostsItsTimeToo) {
  store(1, 0, 3);
  store_->set({.get = true, .late = milliseconds(100)});
  EXPECT_EQ(fetched_at(1, 3, 0.01), "");
  EXPECT_EQ(store_->gets(), 1U);
  EXPECT_EQ(fetched_at(1, 3, 0.01), "");
  EXPECT_EQ(store_->gets(), 1U);
  EXPECT_EQ(cache_->stats().fetches_priced_out, 1U);
}

TEST(FetchRate, ASlowTierIsTriedFromTimeToTime) {
  FetchRate rate;
  const TimePoint now = Clock::now();
  EXPECT_TRUE(rate.worth(1000, 0.001, now));
  rate.note(1000, 1.0, now);
  EXPECT_FALSE(rate.worth(1000, 0.001, now + seconds(9)));
  EXPECT_TRUE(rate.worth(1000, 2.0, now + seconds(9)));
  EXPECT_TRUE(rate.worth(1000, 0.001, now + seconds(11)));
  EXPECT_FALSE(rate.worth(1000, 0.001, now + seconds(12)));  // the trial is under way
  for (int i = 0; i < 40; ++i) rate.note(1000, 0.0001, now + seconds(12));
  EXPECT_TRUE(rate.worth(1000, 0.001, now + seconds(13)));
  rate.note(1000, 1.0, now + seconds(13));
  EXPECT_FALSE(rate.worth(1000, 0.001, now + seconds(14)));
}

// ---- down, up ----

TEST_F(CacheTest, BlocksGoDownOnTheirSecondUse) {
  capture_blocks(1, 3);
  cache_->drain(Clock::now() + seconds(20));
  EXPECT_EQ(store_->puts(), 0U);
  EXPECT_EQ(fetched(1, 2), "h0 h1");
  EXPECT_TRUE(soon([&] { return stored(1, 2); }));
  cache_->drain(Clock::now() + seconds(20));
  EXPECT_FALSE(stored(1, 3));
  EXPECT_EQ(cache_->stats().store->blocks, 2U);
}

TEST_F(CacheTest, BlocksAndCheckpointsGoDownWhenTheirSessionIsIdle) {
  capture_blocks(1, 3);
  capture(1, 2, true);
  turn("a", 1, 3);
  cache_->tick(Clock::now());
  cache_->drain(Clock::now() + seconds(20));  // drain waits for no idleness
  EXPECT_TRUE(stored(1, 3));
  EXPECT_TRUE(store_->contains(kv_.header(1, 2, true).id));
  capture_blocks(20, 2);
  turn("b", 20, 2);
  cache_->tick(Clock::now());
  EXPECT_FALSE(stored(20, 2));
  cache_->tick(Clock::now() + seconds(3));
  EXPECT_TRUE(soon([&] { return stored(20, 2); }));
  const std::uint64_t puts = store_->puts();
  turn("b", 20, 2);
  cache_->drain(Clock::now() + seconds(20));
  EXPECT_EQ(store_->puts(), puts);  // they are there
}

TEST_F(CacheTest, AStoreThatRefusesIsAskedAgainNextTime) {
  capture_blocks(1, 3);
  store_->set({.blocks_max = 1});
  turn("a", 1, 3);
  cache_->drain(Clock::now() + seconds(20));
  EXPECT_EQ(store_->puts(), 2U);  // nothing behind the refused one
  EXPECT_TRUE(stored(1, 1));
  store_->set({});
  turn("a", 1, 3);
  cache_->drain(Clock::now() + seconds(20));
  EXPECT_TRUE(stored(1, 3));
}

TEST_F(CacheTest, DrainGivesUpAtItsDeadline) {
  capture_blocks(1, 3);
  turn("a", 1, 3);
  store_->set({.stalled = true});
  const TimePoint begun = Clock::now();
  cache_->drain(begun + milliseconds(50));
  EXPECT_GE(Clock::now() - begun, milliseconds(50));
  EXPECT_LT(Clock::now() - begun, seconds(10));
  store_->set({});
  EXPECT_TRUE(soon([&] { return stored(1, 3); }));
}

TEST_F(CacheTest, WritingDelaysNoReading) {
  store(20, 0, 2);
  capture_blocks(1, 3);
  turn("a", 1, 3);
  store_->set({.late = milliseconds(1)});
  cache_->tick(Clock::now() + seconds(3));
  EXPECT_EQ(fetched(20, 2), "s0 s1");
}

class Prefetch : public CacheTest {
 protected:
  // A session with a rhythm, whose next turn is expected at once.
  void expect_turn(Token conversation, std::size_t blocks) {
    for (int i = 0; i < 4; ++i) turn("a", conversation, blocks);
    cache_->tick(Clock::now() + milliseconds(10));
  }
};

TEST_F(Prefetch, BringsBlocksUpBeforeTheirTurn) {
  store(1, 0, 3);
  store(1, 2, 3, true);
  expect_turn(1, 3);
  EXPECT_TRUE(soon([&] { return cache_->stats().prefetched_blocks == 4; }));
  store_->set({.stalled = true});
  EXPECT_EQ(fetched(1, 3), "h0 h1 h2");
}

TEST_F(Prefetch, IsNotDoneWhereItIsSwitchedOffNorByDrain) {
  make({.prefetch = false});
  store(1, 0, 3);
  expect_turn(1, 3);
  EXPECT_EQ(fetched(1, 3), "s0 s1 s2");
  EXPECT_EQ(cache_->stats().prefetched_blocks, 0U);
  make({});
  store(1, 0, 3);
  for (int i = 0; i < 4; ++i) turn("a", 1, 3);
  cache_->drain(Clock::now() + seconds(20));
  EXPECT_EQ(fetched(1, 3), "s0 s1 s2");
  EXPECT_EQ(cache_->stats().prefetched_blocks, 0U);
}

TEST_F(Prefetch, LetsFetchesPass) {
  store(1, 0, 200);
  store(20, 0, 1);
  store_->set({.late = milliseconds(5)});
  expect_turn(1, 200);
  ASSERT_TRUE(store_->wait_for_gets(3));
  EXPECT_EQ(fetched(20, 1), "s0");
  EXPECT_LT(store_->gets(), 100U);
}

// ---- rejection ----

TEST_F(CacheTest, ARejectedBlockIsGoneFromEveryTier) {
  capture_blocks(1, 2);
  store(1, 0, 2);
  const auto held = cache_->fetch(request(1, 2));
  cache_->reject(kv_.chain_of(1, 2)[1]);
  EXPECT_EQ(fetched(1, 2), "h0");
  EXPECT_EQ(cache_->stats().rejected, 1U);
  EXPECT_TRUE(store_->contains(kv_.chain_of(1, 1)[0]));
  EXPECT_EQ(come(held, 1), "h0 h1");  // whoever holds it still does
}

TEST_F(CacheTest, SessionsAreListedAndCounted) {
  turn("a", 1, 3);
  turn("b", 20, 2);
  EXPECT_EQ(cache_->stats().sessions, 2U);
  EXPECT_GT(cache_->stats().session_bytes, 5 * sizeof(BlockId));
  EXPECT_THAT(cache_->sessions(10), SizeIs(2));
  EXPECT_THAT(cache_->sessions(1), SizeIs(1));
}

// At the end everything that runs is finished and nothing is waited for that has not begun.
TEST_F(CacheTest, EndsWithFetchesWritesAndPrefetchesUnderWay) {
  store(1, 0, 50);
  capture_blocks(20, 20);
  store_->set({.late = milliseconds(2)});
  std::vector<std::shared_ptr<Fetch>> fetches;
  for (int i = 0; i < 20; ++i) fetches.push_back(cache_->fetch(request(1, 50)));
  for (int i = 0; i < 4; ++i) turn("a", 20, 20);
  cache_->tick(Clock::now() + seconds(3));
  Lease lease = cache_->host()->hold(kv_.chain_of(20, 1)[0]);
  make({});
  EXPECT_TRUE(std::ranges::equal(lease.frame(), kv_.frame(20, 0)));
  for (const auto& each : fetches) EXPECT_NE(come(each, 1), "it never finished");
}

}  // namespace
}  // namespace caravan::kv
