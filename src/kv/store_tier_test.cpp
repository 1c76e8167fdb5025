#include "kv/store_tier.h"

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <fstream>
#include <random>
#include <set>
#include <thread>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/temp_directory.h"
#include "kv/block_format.h"
#include "kv/store_check.h"
#include "kv/store_fixture.h"

namespace caravan::kv {
namespace {

using StoreTierTest = StoreFixture;

TEST_F(StoreTierTest, WhatWasPutIsFoundByteForByteAlsoAfterReopening) {
  open(16 * mebi);
  EXPECT_EQ(put_session(1, 3, 10'000), 3U);
  for (int run = 0; run < 2; ++run) {
    EXPECT_EQ(match(1, 5), 3U);
    EXPECT_EQ(match(2, 5), 0U);
    const Lease lease = get(1, 2);
    ASSERT_TRUE(lease);
    EXPECT_EQ(lease.tier(), TierKind::store);
    EXPECT_TRUE(std::ranges::equal(lease.frame(), frame_of(1, 2, 10'000)));
    EXPECT_FALSE(get(2, 0));
    const TierStats stats = tier_->stats();
    EXPECT_EQ(stats.blocks, 3U);
    EXPECT_EQ(stats.hits, 1U);
    EXPECT_EQ(stats.misses, 1U);
    EXPECT_EQ(stats.leased, 1U);
    if (run == 0) reopen(16 * mebi);
  }
  EXPECT_TRUE(set_aside().empty());
}

TEST_F(StoreTierTest, ErasedIsGoneAndTheRestStays) {
  open(16 * mebi);
  put_session(1, 3, 10'000);
  EXPECT_TRUE(tier_->erase(id_of(1, 2)));
  EXPECT_FALSE(tier_->erase(id_of(1, 2)));
  EXPECT_EQ(match(1, 3), 2U);
  EXPECT_FALSE(get(1, 2));
  EXPECT_TRUE(tier_->verify().tables_agree);
}

TEST_F(StoreTierTest, ADamagedFrameIsNotTaken) {
  open(16 * mebi);
  std::vector<std::byte> frame = frame_of(1, 0, 10'000);
  frame.back() ^= std::byte{1};
  EXPECT_FALSE(tier_->put(id_of(1, 0), frame));
  EXPECT_FALSE(tier_->put(id_of(2, 0), frame_of(1, 0, 10'000)));  // another's id
  EXPECT_EQ(match(1, 1), 0U);
  EXPECT_EQ(tier_->stats().failures, 2U);
}

TEST_F(StoreTierTest, AFullStoreGivesUpLeavesFirstAndKeepsTrunks) {
  open(4 * mebi);
  std::int32_t session = 1;
  while (tier_->stats().evicted == 0 && session < 200) put_session(session++, 8, 64'000);
  ASSERT_GT(tier_->stats().evicted, 0U);
  for (int more = 0; more < 20; ++more) put_session(session++, 8, 64'000);
  // What is left of each session is its beginning.
  std::uint64_t matched = 0;
  for (std::int32_t each = 1; each < session; ++each) matched += match(each, 8);
  EXPECT_EQ(matched, tier_->stats().blocks);
  EXPECT_EQ(match(session - 1, 8), 8U);
  EXPECT_EQ(match(1, 8), 0U);
}

TEST_F(StoreTierTest, TouchingALeafKeepsItsTrunkAndWhatIsNotTouchedGoes) {
  open(4 * mebi);
  put_session(1, 4, 50'000);
  put_session(2, 4, 50'000);
  const std::vector<BlockId> leaf = {id_of(1, 3)};
  for (std::int32_t session = 10; session < 60; ++session) {
    tier_->touch(leaf);
    tier_->flush();
    put_session(session, 4, 50'000);
  }
  EXPECT_EQ(match(1, 4), 4U);
  EXPECT_EQ(match(2, 4), 0U);
}

TEST_F(StoreTierTest, ReadingCountsAsUse) {
  open(4 * mebi);
  put_session(1, 4, 50'000);
  put_session(2, 4, 50'000);
  for (std::int32_t session = 10; session < 60; ++session) {
    for (std::size_t block = 0; block < 4; ++block) EXPECT_TRUE(get(1, block));
    tier_->flush();
    put_session(session, 4, 50'000);
  }
  EXPECT_EQ(match(1, 4), 4U);
  EXPECT_EQ(match(2, 4), 0U);
}

TEST_F(StoreTierTest, TheBudgetHoldsOverSeveralTurnovers) {
  constexpr std::uint64_t budget = 16 * mebi;
  open(budget);
  std::uint64_t put_bytes = 0;
  for (std::int32_t session = 0; put_bytes < 6 * budget; ++session) {
    const std::uint64_t payload = session % 3 == 0 ? 300'000 : 100'000;
    const std::size_t kept = put_session(session, 1 + session % 4, payload);
    EXPECT_EQ(kept, 1U + session % 4);
    put_bytes += kept * payload;
    ASSERT_LE(tier_->stats().bytes, store_budget(budget));
    ASSERT_LE(bytes_on_disk(), budget + 256 * 1024);  // LMDB's table of readers beside it
    ASSERT_EQ(match(session, 1), 1U);
  }
  const TierStats stats = tier_->stats();
  EXPECT_GT(stats.evicted, 0U);
  EXPECT_GT(stats.frame_bytes, budget / 2);
  EXPECT_FALSE(stats.degraded);
  EXPECT_TRUE(tier_->verify().tables_agree);
}

TEST_F(StoreTierTest, AFrameLargerThanItsShareIsRefused) {
  open(4 * mebi);
  EXPECT_FALSE(put(1, 0, 1'000'000));
  EXPECT_TRUE(put(2, 0, 100'000));
  EXPECT_EQ(tier_->stats().refused, 1U);
  EXPECT_FALSE(tier_->stats().degraded);
  EXPECT_EQ(StoreTier::open({.directory = directory_.path(), .bytes_max = 1000}).error().code,
            ErrorCode::invalid_argument);
}

TEST_F(StoreTierTest, PinnedBlocksStayAndAreAtMostHalf) {
  open(4 * mebi);
  put(1, 0, 100'000);
  EXPECT_TRUE(tier_->pin(id_of(1, 0)));
  EXPECT_FALSE(tier_->pin(id_of(77, 0)));
  for (std::int32_t session = 2; session < 100; ++session) put(session, 0, 100'000);
  EXPECT_EQ(match(1, 1), 1U);
  std::size_t pinned = 0;
  for (const StoreTier::Block& block : list()) pinned += tier_->pin(block.id) ? 1U : 0U;
  EXPECT_LE(pinned * 100'000, 2 * mebi);
  EXPECT_GT(pinned, 10U);
  EXPECT_TRUE(put(500, 0, 100'000));
  reopen(4 * mebi);
  EXPECT_EQ(std::ranges::count_if(list(), [](const auto& block) { return block.pinned; }), pinned);
  EXPECT_TRUE(tier_->unpin(id_of(1, 0)));
  EXPECT_TRUE(tier_->verify().tables_agree);
  for (std::int32_t session = 200; session < 300; ++session) put(session, 0, 100'000);
  EXPECT_EQ(match(1, 1), 0U);
}

TEST_F(StoreTierTest, EvictGivesUpSoManyBytesAndClearAll) {
  open(16 * mebi);
  put_session(1, 20, 100'000);
  const std::uint64_t gone = tier_->evict(500'000);
  EXPECT_GE(gone, 500'000U);
  EXPECT_LT(gone, 700'000U);
  EXPECT_EQ(match(1, 20), tier_->stats().blocks);
  const Lease lease = get(1, 0);
  ASSERT_TRUE(tier_->clear());
  EXPECT_EQ(tier_->stats().frame_bytes, 0U);
  EXPECT_EQ(match(1, 20), 0U);
  EXPECT_TRUE(std::ranges::equal(lease.frame(), frame_of(1, 0, 100'000)));
  EXPECT_TRUE(put(1, 0, 100'000));
}

TEST_F(StoreTierTest, ManyArePutInFewTransactionsAndAllAreVisited) {
  open(64 * mebi);
  std::vector<std::vector<std::byte>> frames;
  std::vector<StoreTier::Item> items;
  for (std::int32_t session = 0; session < 200; ++session) frames.push_back(frame_of(session, 0, 100'000));
  for (std::int32_t session = 0; session < 200; ++session) {
    items.push_back({.id = id_of(session, 0), .frame = frames[session]});
  }
  EXPECT_EQ(tier_->put_many(items), 200U);
  EXPECT_EQ(tier_->put_many(items), 200U);  // they are here
  EXPECT_EQ(tier_->stats().inserted, 200U);
  std::set<BlockId> visited;
  tier_->for_each([&](const StoreTier::Block& block) {
    EXPECT_EQ(block.bytes, frames[0].size());
    visited.insert(block.id);
    return true;
  });
  EXPECT_EQ(visited.size(), 200U);
}

TEST_F(StoreTierTest, LeasesOutliveEvictionErasureCompactionAndClosing) {
  open(4 * mebi);
  put_session(1, 3, 50'000);
  std::vector<Lease> leases;
  for (std::size_t block = 0; block < 3; ++block) leases.push_back(get(1, block));
  const auto intact = [&] {
    for (std::size_t block = 0; block < 3; ++block) {
      EXPECT_TRUE(std::ranges::equal(leases[block].frame(), frame_of(1, block, 50'000)));
    }
  };
  EXPECT_TRUE(tier_->erase(id_of(1, 2)));
  for (std::int32_t session = 2; session < 100; ++session) put(session, 0, 50'000);
  intact();
  ASSERT_TRUE(tier_->compact());
  for (std::int32_t session = 100; session < 200; ++session) put(session, 0, 50'000);
  EXPECT_EQ(match(199, 1), 1U);
  intact();
  tier_.reset();
  intact();
  open(4 * mebi);
  for (std::int32_t session = 200; session < 300; ++session) put(session, 0, 50'000);
  intact();
  EXPECT_TRUE(set_aside().empty());
}

// The file does not grow for a reader that stays: puts are refused, and taken again when it has gone.
TEST_F(StoreTierTest, AReaderThatStaysCostsPutsNotRoom) {
  open(4 * mebi);
  put_session(1, 1, 50'000);
  Lease lease = get(1, 0);
  std::int32_t session = 2;
  while (session < 300 && put(session, 0, 50'000)) ++session;
  ASSERT_LT(session, 300);
  EXPECT_TRUE(tier_->stats().degraded);
  EXPECT_LE(bytes_on_disk(), 4 * mebi + 256 * 1024);
  EXPECT_GT(tier_->stats().blocks, 20U);  // not emptied in vain
  EXPECT_TRUE(std::ranges::equal(lease.frame(), frame_of(1, 0, 50'000)));
  lease = {};
  EXPECT_FALSE(put(session, 0, 50'000));  // not tried yet
  now_ = now_.load() + std::chrono::seconds(2);
  EXPECT_TRUE(put(session, 0, 50'000));
  EXPECT_FALSE(tier_->stats().degraded);
}

TEST_F(StoreTierTest, AHalfAsLargeStoreKeepsWhatFitsAndItsFileFits) {
  open(16 * mebi);
  for (std::int32_t session = 0; session < 200; ++session) put(session, 0, 100'000);
  ASSERT_GT(bytes_on_disk(), 12 * mebi);
  reopen(8 * mebi);
  EXPECT_LE(bytes_on_disk(), 8 * mebi + 256 * 1024);
  EXPECT_LE(tier_->stats().bytes, store_budget(8 * mebi));
  EXPECT_EQ(match(199, 1), 1U);
  EXPECT_EQ(match(100, 1), 0U);
  EXPECT_GT(tier_->stats().blocks, 50U);
  EXPECT_TRUE(tier_->verify().tables_agree);
  for (std::int32_t session = 200; session < 400; ++session) EXPECT_TRUE(put(session, 0, 100'000));
  EXPECT_LE(bytes_on_disk(), 8 * mebi + 256 * 1024);
  reopen(32 * mebi);  // and larger
  for (std::int32_t session = 400; session < 600; ++session) EXPECT_TRUE(put(session, 0, 100'000));
  EXPECT_EQ(match(400, 1), 1U);
  EXPECT_TRUE(set_aside().empty());
}

TEST_F(StoreTierTest, CompactionGivesBackRoomAndLosesNothing) {
  open(16 * mebi);
  for (std::int32_t session = 0; session < 100; ++session) put(session, 0, 100'000);
  tier_->evict(8'000'000);
  const std::uint64_t blocks = tier_->stats().blocks;
  const std::uint64_t before = bytes_on_disk();
  ASSERT_TRUE(tier_->compact());
  EXPECT_LT(bytes_on_disk(), before / 2);
  EXPECT_EQ(tier_->verify().blocks, blocks);
  EXPECT_EQ(match(99, 1), 1U);
  reopen(16 * mebi);
  EXPECT_EQ(tier_->stats().blocks, blocks);
}

TEST_F(StoreTierTest, ABackupIsAStoreOfItsOwn) {
  open(16 * mebi);
  put_session(1, 5, 100'000);
  const TempDirectory other;
  ASSERT_TRUE(tier_->backup(other / "copy"));
  EXPECT_FALSE(tier_->backup(other / "copy"));  // there is one
  tier_->erase(id_of(1, 0));
  auto copy = StoreTier::open({.directory = other / "copy", .bytes_max = 16 * mebi});
  ASSERT_TRUE(copy);
  EXPECT_EQ((*copy)->match(chain_of(1, 5)), 5U);
  EXPECT_EQ(match(1, 5), 0U);
}

// Readers check every byte they see while writers turn the tier over.
TEST_F(StoreTierTest, ReadersSeeWholeFramesWhileWritersTurnItOver) {
  auto opened = StoreTier::open({.directory = directory_.path(), .bytes_max = 8 * mebi});
  ASSERT_TRUE(opened);
  tier_ = std::move(*opened);
  std::atomic<bool> stop = false;
  std::atomic<std::uint64_t> seen = 0;
  std::atomic<std::uint64_t> wrong = 0;
  std::vector<std::thread> threads;
  for (int writer = 0; writer < 2; ++writer) {
    threads.emplace_back([&, writer] {
      for (std::int32_t round = 0; round < 200; ++round) {
        const std::int32_t session = (round * 7 + writer) % 150;
        tier_->put(id_of(session, 0), frame_of(session, 0, 100'000));
        if (round % 50 == 17) tier_->erase(id_of(round % 150, 0));
        if (round % 100 == 57) EXPECT_TRUE(tier_->compact());
      }
    });
  }
  for (int reader = 0; reader < 2; ++reader) {
    threads.emplace_back([&, reader] {
      for (std::int32_t round = 0; !stop; ++round) {
        const std::int32_t session = (round * 3 + reader) % 150;
        const Lease lease = tier_->get(space_, id_of(session, 0));
        if (!lease) continue;
        ++seen;
        if (!open_frame(lease.frame(), space_, id_of(session, 0))) ++wrong;
      }
    });
  }
  threads[0].join();
  threads[1].join();
  stop = true;
  threads[2].join();
  threads[3].join();
  EXPECT_GT(seen, 0U);
  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(tier_->stats().leased, 0U);
  EXPECT_TRUE(tier_->verify().tables_agree);
  EXPECT_EQ(tier_->verify().damaged, 0U);
}

}  // namespace
}  // namespace caravan::kv
