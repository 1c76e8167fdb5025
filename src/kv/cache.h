// The tiers in order, as the engine sees them: capture into the host, fetch from the nearest that has it, and in the
// background down to the store what was used twice or whose session went idle.
//
//   fetch   host (at once, on the caller's thread) -> store -> peers -> remote (on a worker, in this order)
//   down    host -> store (on another worker, so that writing delays no reading)
//
// Thread safety: all calls may come from any thread; none waits for I/O but those that say so.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/worker.h"
#include "kv/fetch.h"
#include "kv/fetch_rate.h"
#include "kv/host_tier.h"
#include "kv/session_book.h"
#include "kv/tier.h"

namespace caravan::kv {

struct FetchRequest {
  BlockId namespace_id;
  std::vector<BlockId> chain;  // the blocks that may be restored, from the first of the prompt
  std::uint32_t first = 0;     // of those, so many the sequence has already
  std::uint32_t least = 1;     // and so many must be reached for the fetch to be of use
  // What the model's memory consists of: blocks, checkpoints (then only the last matters), or both.
  bool blocks = true;
  bool checkpoints = false;
  std::uint64_t block_bytes = 0;
  double compute_seconds_per_block = 0;  // 0: not known yet
  std::function<void()> wake;
};

class Cache {
 public:
  struct Options {
    SessionBookOptions sessions;
    bool prefetch = true;
  };
  // Either tier may be missing.
  Cache(std::unique_ptr<HostTier> host, std::unique_ptr<Tier> store, Options options);
  ~Cache();
  Cache(const Cache&) = delete;
  Cache& operator=(const Cache&) = delete;

  // ---- capture ----
  // Whether a block is worth capturing: there is a host tier, and it does not have it.
  [[nodiscard]] bool wants(const BlockId& id);
  // A place for a frame; none: no room, and the block is not kept. Write the payload at header_bytes(), then commit.
  std::optional<HostTier::Slot> reserve(const BlockId& id, const BlockId& parent, std::uint64_t bytes);
  void commit(HostTier::Slot slot, const FrameHeader& header);

  // ---- fetch ----
  // What can be had of the chain beyond `first`; null: nothing, and that is certain. Whoever lets go of it stops it.
  std::shared_ptr<Fetch> fetch(FetchRequest request);
  // The engine could not use a frame.
  void reject(const BlockId& id);
  // A prefix was found on the device: its copies below are in use too.
  void used(std::span<const BlockId> ids);

  // ---- sessions ----
  SessionId begin_turn(std::string_view tenant, std::string_view session, std::span<const BlockId> prompt);
  void end_turn(SessionId session, const BlockId& namespace_id, std::span<const BlockId> chain);
  [[nodiscard]] std::vector<SessionView> sessions(std::size_t most);

  // Starts what is due in the background; call it about once a second.
  void tick(TimePoint now);
  // Sends all sessions' blocks down and waits for it until `deadline`. May wait.
  void drain(TimePoint deadline);

  struct Stats {
    std::optional<TierStats> host;
    std::optional<TierStats> store;
    std::uint64_t fetches = 0;
    std::uint64_t fetches_priced_out = 0;  // not done because computing was cheaper
    std::uint64_t rejected = 0;            // frames that the engine could not use
    std::uint64_t prefetched_blocks = 0;
    std::uint64_t forecasts_met = 0;
    std::uint64_t forecasts_missed = 0;
    std::uint64_t sessions = 0;
    std::uint64_t session_bytes = 0;
    std::uint64_t down_dropped = 0;  // writes that were not even queued: the store is slower than what comes
  };
  [[nodiscard]] Stats stats();

  [[nodiscard]] HostTier* host() { return host_.get(); }
  [[nodiscard]] Tier* store() { return store_.get(); }

 private:
  struct Wanted {
    std::uint32_t block = 0;
    bool checkpoint = false;
    BlockId id;
  };
  // The pieces to fetch when `has` says what is there.
  static std::vector<Wanted> plan(const FetchRequest& request, const std::function<bool(const BlockId&)>& has);
  void fetch_slowly(const FetchRequest& request, Fetch& fetch, std::uint32_t begun);
  Lease read(const BlockId& namespace_id, const BlockId& id, std::uint64_t bytes);
  void down(std::vector<BlockId> chain);
  void up(const BlockId& namespace_id, std::vector<BlockId> frames);
  // The ids under which a chain's frames may lie: each block, and the checkpoint at its end.
  static std::vector<BlockId> frames_of(std::span<const BlockId> chain);

  std::unique_ptr<HostTier> host_;
  std::unique_ptr<Tier> store_;
  const Options options_;

  Mutex mutex_;
  SessionBook book_ GUARDED_BY(mutex_);
  FetchRate store_rate_ GUARDED_BY(mutex_);

  std::unordered_map<BlockId, std::weak_ptr<const Lease>> shared_;  // from the store; the reader's alone

  std::atomic<std::uint64_t> fetches_ = 0;
  std::atomic<std::uint64_t> priced_out_ = 0;
  std::atomic<std::uint64_t> rejected_ = 0;
  std::atomic<std::uint64_t> prefetched_ = 0;
  std::atomic<std::uint64_t> down_dropped_ = 0;

  Worker reader_;
  Worker writer_;
};

}  // namespace caravan::kv
