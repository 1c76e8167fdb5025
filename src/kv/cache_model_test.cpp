// The cache against a plain model: random calls, with I/O that fails, is late or stalls. Whatever comes was put under
// its id, byte for byte and for as long as it is held; budgets hold; nothing waits for ever.
//
// CARAVAN_MODEL_TEST_SEEDS=100 runs so many seeds, and CARAVAN_MODEL_TEST_FIRST_SEED=N begins at that which failed.

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kv/cache.h"
#include "kv/cache_fixture.h"

namespace caravan::kv {
namespace {

constexpr int steps = 10'000;
constexpr std::uint64_t host_bytes = std::uint64_t{512} << 10U;  // room for about a quarter of all there is
constexpr std::size_t store_blocks = 150;
constexpr std::size_t conversations = 30;
constexpr std::size_t blocks = 10;  // of each
constexpr std::size_t open_most = 20;
constexpr std::size_t leases_most = 20;

std::uint32_t number_from(const char* variable, std::uint32_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : static_cast<std::uint32_t>(std::strtoul(text, nullptr, 10));
}

class Scenario {
 public:
  explicit Scenario(std::uint32_t seed) : random_(seed) {
    auto store = std::make_unique<FaultyTier>();
    store_ = store.get();
    cache_ = std::make_unique<Cache>(std::make_unique<HostTier>(HostTierOptions{.bytes_max = host_bytes}),
                                     std::move(store), Cache::Options{});
  }
  ~Scenario() { store_->set({}); }
  Scenario(const Scenario&) = delete;
  Scenario& operator=(const Scenario&) = delete;

  void step() {
    struct Choice {
      std::size_t weight;
      void (Scenario::*action)();
    };
    static constexpr Choice choices[] = {
        {30, &Scenario::capture},     {25, &Scenario::begin_fetch}, {20, &Scenario::take},
        {5, &Scenario::finish_fetch}, {4, &Scenario::stop_fetch},   {8, &Scenario::release_lease},
        {3, &Scenario::use},          {6, &Scenario::begin_turn},   {6, &Scenario::end_turn},
        {4, &Scenario::tick},         {3, &Scenario::reject},       {2, &Scenario::erase},
        {2, &Scenario::evict},        {2, &Scenario::pin},          {4, &Scenario::change_faults}};
    static constexpr std::size_t all = 124;
    std::size_t chosen = below(all);
    for (const Choice& choice : choices) {
      if (chosen < choice.weight) {
        (this->*choice.action)();
        break;
      }
      chosen -= choice.weight;
    }
    if (below(1000) == 0) cache_->host()->clear();
    if (below(2000) == 0) cache_->drain(Clock::now() + std::chrono::milliseconds(1));
    check_budget();
  }

  // Once everything is let go of and the I/O works again, nothing is held, and what is put is had.
  void end() {
    store_->set({});
    while (!open_.empty()) finish_fetch();
    leases_.clear();
    cache_->drain(Clock::now() + std::chrono::seconds(30));
    // Behind what the reader has yet to do.
    if (const Open last = new_fetch(0, blocks, 0, Memory::cells); last.fetch) finish(last);
    leases_.clear();
    EXPECT_EQ(cache_->stats().host->leased, 0U);
    cache_->host()->clear();
    put_.try_emplace(kv_.header(0, 0).id, kv_.frame(0, 0));
    ASSERT_TRUE(cache_->host()->put(kv_.header(0, 0).id, kv_.frame(0, 0)));
    const Open open = new_fetch(0, 1, 0, Memory::cells);
    ASSERT_TRUE(open.fetch);
    finish(open);
    EXPECT_EQ(leases_.size(), 1U);
    EXPECT_GT(pieces_, steps / 20U) << "hardly anything was ever found";
  }

 private:
  enum class Memory { cells, state, both };  // of the model that asks
  struct Open {
    Token conversation = 0;
    std::uint32_t next = 0;  // the first block that may come
    bool checkpoints = false;
    std::size_t length = 0;
    std::shared_ptr<Fetch> fetch;
    Waiting waiting;
  };

  std::size_t below(std::size_t most) { return random_() % most; }
  Token conversation() { return static_cast<Token>(below(conversations)); }
  std::vector<BlockId> some_chain(Token of) { return kv_.chain_of(of, 1 + below(blocks)); }
  BlockId some_frame() {
    const BlockId block = some_chain(conversation()).back();
    return below(4) == 0 ? state_id(block) : block;
  }

  // ---- capture ----

  void capture() {
    const Token of = conversation();
    const std::size_t end = 1 + below(blocks);
    for (std::size_t block = below(end); block < end; ++block) capture_block(of, block, false);
    if (below(2) == 0) capture_block(of, end - 1, true);
  }
  void capture_block(Token of, std::size_t block, bool checkpoint) {
    const FrameHeader header = kv_.header(of, block, checkpoint);
    if (!cache_->wants(header.id)) return;
    auto slot = cache_->reserve(header.id, checkpoint ? kv_.space() : header.parent, kv_.frame_size());
    if (!slot) return;
    Conversations::fill(slot->bytes().subspan(header_bytes(test_block_tokens)), header.id);
    if (below(20) == 0) return;  // a copy that broke off
    put_.try_emplace(header.id, kv_.frame(of, block, checkpoint));
    cache_->commit(std::move(*slot), header);
  }

  // ---- fetch ----

  Open new_fetch(Token of, std::size_t length, std::size_t first, Memory memory) {
    Open open{.conversation = of,
              .next = static_cast<std::uint32_t>(first),
              .checkpoints = memory != Memory::cells,
              .length = length};
    FetchRequest request{.namespace_id = kv_.space(),
                         .chain = kv_.chain_of(of, length),
                         .first = open.next,
                         .least = open.next + 1,
                         .blocks = memory != Memory::state,
                         .checkpoints = open.checkpoints,
                         .block_bytes = kv_.block_bytes(),
                         .compute_seconds_per_block = below(2) == 0 ? 0 : 1e-5,
                         .wake = open.waiting.wake()};
    if (!request.blocks) open.next = ~0U;  // the checkpoint alone
    open.fetch = cache_->fetch(std::move(request));
    return open;
  }
  void begin_fetch() {
    const std::size_t length = 1 + below(blocks);
    const auto memory = static_cast<Memory>(below(4) % 3);
    const std::size_t first = memory == Memory::cells && below(3) == 0 ? below(length) : 0;
    Open open = new_fetch(conversation(), length, first, memory);
    if (open.fetch) open_.push_back(std::move(open));
    if (open_.size() > open_most) finish_fetch();
  }
  void take() {
    if (open_.empty()) return;
    Open& open = open_[below(open_.size())];
    if (auto piece = open.fetch->take()) check(open, std::move(*piece));
  }
  void finish_fetch() {
    if (open_.empty()) return;
    store_->set({.blocks_max = store_blocks});  // or the store may be stalled
    finish(open_.front());
    open_.pop_front();
  }
  void finish(Open open) {
    std::vector<Fetch::Piece> pieces;
    ASSERT_TRUE(open.waiting.finish(*open.fetch, pieces)) << "a fetch never finished";
    for (Fetch::Piece& piece : pieces) check(open, std::move(piece));
  }
  void stop_fetch() {
    if (open_.empty()) return;
    if (below(2) == 0) open_.back().fetch->stop();
    open_.pop_back();
  }

  // In order, each once, and byte for byte what was put.
  void check(Open& open, Fetch::Piece piece) {
    ++pieces_;
    ASSERT_LT(piece.block, open.length);
    if (!piece.checkpoint) {
      ASSERT_EQ(piece.block, open.next);
      ++open.next;
    } else {
      ASSERT_TRUE(open.checkpoints && (open.next == ~0U || open.next == piece.block + 1));
      open.next = static_cast<std::uint32_t>(open.length);  // the last that comes
    }
    const BlockId block = kv_.chain_of(open.conversation, piece.block + 1).back();
    check_and_keep(piece.checkpoint ? state_id(block) : block, std::move(piece.lease));
  }
  void check_and_keep(const BlockId& id, Lease lease) {
    const auto put = put_.find(id);
    ASSERT_NE(put, put_.end()) << "found what was never put";
    ASSERT_TRUE(lease);
    ASSERT_TRUE(std::ranges::equal(lease.frame(), put->second));
    leases_.emplace_back(id, std::move(lease));
    if (leases_.size() > leases_most) release_lease();
  }
  // While it is held it has not changed.
  void release_lease() {
    if (leases_.empty()) return;
    const std::size_t at = below(leases_.size());
    ASSERT_TRUE(std::ranges::equal(leases_[at].second.frame(), put_.at(leases_[at].first)));
    leases_.erase(leases_.begin() + static_cast<std::ptrdiff_t>(at));
  }

  // ---- the rest ----

  void use() { cache_->used(some_chain(conversation())); }
  void begin_turn() {
    const Token of = conversation();
    turns_.emplace_back(of, cache_->begin_turn("", below(2) == 0 ? fmt::format("{}", of) : "", some_chain(of)));
  }
  void end_turn() {
    if (turns_.empty()) return;
    const auto [of, session] = turns_.front();
    turns_.pop_front();
    cache_->end_turn(session, kv_.space(), some_chain(of));
  }
  void tick() { cache_->tick(Clock::now() + std::chrono::seconds(below(5))); }
  void reject() { cache_->reject(some_frame()); }
  void erase() { below(2) == 0 ? cache_->host()->erase(some_frame()) : store_->erase(some_frame()); }
  void evict() { cache_->host()->evict(below(host_bytes / 2)); }
  void pin() { below(3) == 0 ? cache_->host()->pin(some_frame()) : cache_->host()->unpin(some_frame()); }
  void change_faults() {
    store_->set({.get = below(4) == 0,
                 .put = below(4) == 0,
                 .late = std::chrono::microseconds(below(3) == 0 ? below(200) : 0),
                 .stalled = below(8) == 0,
                 .blocks_max = store_blocks});
  }

  void check_budget() {
    const TierStats stats = cache_->host()->stats();
    ASSERT_LE(stats.bytes, host_bytes);
    ASSERT_LE(stats.frame_bytes, stats.bytes);
    ASSERT_EQ(stats.frame_bytes, stats.blocks * kv_.frame_size());
    ASSERT_LE(store_->stats().blocks, store_blocks);
  }

  std::mt19937 random_;
  const Conversations kv_{5000};
  std::unordered_map<BlockId, std::vector<std::byte>> put_;  // the model
  FaultyTier* store_ = nullptr;
  std::unique_ptr<Cache> cache_;
  std::deque<Open> open_;
  std::vector<std::pair<BlockId, Lease>> leases_;
  std::deque<std::pair<Token, SessionId>> turns_;
  std::uint64_t pieces_ = 0;
};

TEST(CacheModel, WhateverHappensHandsOutWhatWasPut) {
  const std::uint32_t first = number_from("CARAVAN_MODEL_TEST_FIRST_SEED", 1);
  const std::uint32_t seeds = number_from("CARAVAN_MODEL_TEST_SEEDS", 3);
  for (std::uint32_t seed = first; seed < first + seeds; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Scenario scenario(seed);
    for (int step = 0; step < steps; ++step) {
      scenario.step();
      ASSERT_FALSE(HasFailure()) << "at step " << step;
    }
    scenario.end();
    ASSERT_FALSE(HasFailure());
  }
}

}  // namespace
}  // namespace caravan::kv
