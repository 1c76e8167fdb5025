// For tests of the cache: conversations whose frames can be told from their ids, and a store whose I/O can fail.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "kv/block_format.h"
#include "kv/cache.h"
#include "kv/tier.h"

namespace caravan::kv {

constexpr std::uint32_t test_block_tokens = 8;

// Conversations that begin alike: those of the same tens share their first `shared` blocks.
class Conversations {
 public:
  static constexpr std::size_t shared = 3;

  explicit Conversations(std::uint64_t payload_bytes) : payload_bytes_(payload_bytes) {}

  [[nodiscard]] const BlockId& space() const { return space_; }
  [[nodiscard]] std::uint64_t block_bytes() const { return payload_bytes_; }
  [[nodiscard]] std::uint64_t frame_size() const { return frame_bytes(test_block_tokens, payload_bytes_); }
  [[nodiscard]] std::vector<BlockId> chain_of(Token conversation, std::size_t blocks) const {
    return chain(space_, tokens_of(conversation, blocks), test_block_tokens);
  }
  [[nodiscard]] FrameHeader header(Token conversation, std::size_t block, bool checkpoint = false) const {
    const std::vector<Token> tokens = tokens_of(conversation, block + 1);
    const std::vector<BlockId> ids = chain(space_, tokens, test_block_tokens);
    return {.checkpoint = checkpoint,
            .raw_bytes = payload_bytes_,
            .stored_bytes = payload_bytes_,
            .namespace_id = space_,
            .parent = block == 0 ? space_ : ids[block - 1],
            .id = checkpoint ? state_id(ids[block]) : ids[block],
            .tokens = {tokens.end() - test_block_tokens, tokens.end()}};
  }
  // The payload of each is another's, and the same whenever it is made.
  static void fill(std::span<std::byte> payload, const BlockId& id) {
    for (std::size_t i = 0; i < payload.size(); ++i) payload[i] = std::byte(id.bytes[i % 32] + i / 32);
  }
  [[nodiscard]] std::vector<std::byte> frame(Token conversation, std::size_t block, bool checkpoint = false) const {
    const FrameHeader head = header(conversation, block, checkpoint);
    std::vector<std::byte> bytes(frame_size());
    fill(std::span(bytes).subspan(header_bytes(test_block_tokens)), head.id);
    seal_frame(bytes, head);
    return bytes;
  }

 private:
  [[nodiscard]] static std::vector<Token> tokens_of(Token conversation, std::size_t blocks) {
    std::vector<Token> tokens(blocks * test_block_tokens, conversation);
    const std::size_t common = std::min(tokens.size(), shared * test_block_tokens);
    std::fill_n(tokens.begin(), common, 1000 + conversation / 10);
    return tokens;
  }

  const BlockId space_ = Namespace{.model = "m", .type_k = "f16", .type_v = "f16"}.id();
  const std::uint64_t payload_bytes_;
};

// A store in memory. What goes wrong is set from outside, at any time.
class FaultyTier final : public Tier {
 public:
  struct Faults {
    bool get = false;      // reads find nothing
    bool put = false;      // writes are refused
    Duration late{};       // reads and writes take so long
    bool stalled = false;  // reads and writes begin to wait, until this is false again
    std::size_t blocks_max = SIZE_MAX;
  };
  void set(const Faults& faults) {
    {
      const Lock lock(mutex_);
      faults_ = faults;
    }
    changed_.notify_all();
  }
  // Waits until so many reads have begun.
  bool wait_for_gets(std::uint64_t count) {
    const TimePoint deadline = Clock::now() + std::chrono::seconds(20);
    while (gets_ < count && Clock::now() < deadline) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return gets_ >= count;
  }
  [[nodiscard]] std::uint64_t gets() const { return gets_; }
  [[nodiscard]] std::uint64_t puts() const { return puts_; }

  // ---- Tier ----
  [[nodiscard]] TierKind kind() const override { return TierKind::store; }
  std::size_t match(std::span<const BlockId> ids) override {
    std::size_t count = 0;
    while (count < ids.size() && contains(ids[count])) ++count;
    return count;
  }
  [[nodiscard]] bool contains(const BlockId& id) override {
    const Lock lock(mutex_);
    return frames_.contains(id);
  }
  Lease get(const BlockId& /*namespace_id*/, const BlockId& id) override {
    ++gets_;
    if (begin().get) return {};
    const Lock lock(mutex_);
    const auto found = frames_.find(id);
    if (found == frames_.end()) return {};
    return {TierKind::store, *found->second, found->second};
  }
  bool put(const BlockId& id, Bytes frame) override {
    ++puts_;
    const Faults faults = begin();
    const Lock lock(mutex_);
    if (faults.put || frames_.size() >= faults.blocks_max) return false;
    frames_.try_emplace(id, std::make_shared<const std::vector<std::byte>>(frame.begin(), frame.end()));
    return true;
  }
  bool erase(const BlockId& id) override {
    const Lock lock(mutex_);
    return frames_.erase(id) > 0;
  }
  [[nodiscard]] TierStats stats() const override {
    const Lock lock(mutex_);
    return {.blocks = frames_.size()};
  }

 private:
  Faults begin() {
    Lock lock(mutex_);
    while (faults_.stalled) lock.wait(changed_);
    const Faults faults = faults_;
    if (faults.late > Duration::zero()) lock.wait_until(changed_, Clock::now() + faults.late);
    return faults;
  }

  std::atomic<std::uint64_t> gets_ = 0;
  std::atomic<std::uint64_t> puts_ = 0;
  mutable Mutex mutex_;
  std::condition_variable changed_;
  Faults faults_ GUARDED_BY(mutex_);
  std::unordered_map<BlockId, std::shared_ptr<const std::vector<std::byte>>> frames_ GUARDED_BY(mutex_);
};

// What one fetch brings, for a test that waits for it.
class Waiting {
 public:
  [[nodiscard]] std::function<void()> wake() const {
    return [state = state_] {
      const Lock lock(state->mutex);
      ++state->wakes;
      state->arrived.notify_all();
    };
  }
  [[nodiscard]] std::uint64_t wakes() const {
    const Lock lock(state_->mutex);
    return state_->wakes;
  }
  // All that comes until the fetch is finished. False: it has not finished in a time that nothing here may take.
  bool finish(Fetch& fetch, std::vector<Fetch::Piece>& pieces) const {
    const TimePoint deadline = Clock::now() + std::chrono::seconds(30);
    while (true) {
      const std::uint64_t seen = wakes();
      while (auto piece = fetch.take()) pieces.push_back(std::move(*piece));
      if (fetch.finished()) return true;
      Lock lock(state_->mutex);
      while (state_->wakes == seen && Clock::now() < deadline) lock.wait_until(state_->arrived, deadline);
      if (state_->wakes == seen) return false;
    }
  }

 private:
  struct State {
    Mutex mutex;
    std::condition_variable arrived;
    std::uint64_t wakes GUARDED_BY(mutex) = 0;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace caravan::kv
