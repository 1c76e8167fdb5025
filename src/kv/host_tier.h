// The host tier: frames in RAM, within a hard budget that counts everything (I6).
//
// Memory is mapped in regions and cut into slots of one size each, because the frames of a model come in one or two
// sizes; so nothing fragments, and a block given up is the room of the next. Regions are touched ahead of demand on a
// thread of their own: copying into fresh pages is thirty times slower than into touched ones.
//
//   writing   reserve -> the caller fills and seals the slot -> commit; invisible until then (I3)
//   reading   get -> lease; the block stays while the lease lives, even when it is erased meanwhile
//   room      a free slot, else another region, else the block that is least worth keeping (kv/eviction.h), else none:
//             nothing here waits
//
// Frames are verified when they come from outside (Tier::put), not again when they are read: what is in our own memory
// is as trustworthy as the program. Thread-safe; every call is short and none waits for I/O.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "kv/tier.h"

namespace caravan::kv {

struct HostTierOptions {
  std::uint64_t bytes_max = 0;  // frames, what is mapped for more of them, the index, and what eviction remembers
  std::function<TimePoint()> now = Clock::now;
};

class HostTier final : public Tier {
 public:
  explicit HostTier(HostTierOptions options);
  ~HostTier() override;
  HostTier(const HostTier&) = delete;
  HostTier& operator=(const HostTier&) = delete;

  struct Writing;
  // A place for a frame that nobody sees yet. Given back when it is dropped. May outlive the tier.
  class Slot {
   public:
    Slot(Slot&&) noexcept = default;
    Slot& operator=(Slot&&) noexcept = default;
    [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

   private:
    friend class HostTier;
    Slot(std::shared_ptr<Writing> writing, std::span<std::byte> bytes) : writing_(std::move(writing)), bytes_(bytes) {}
    std::shared_ptr<Writing> writing_;
    std::span<std::byte> bytes_;
  };

  // Frames of so many bytes will come soon: memory is prepared for them.
  void prepare(std::uint64_t frame_bytes);
  // None: larger than the tier, or all that is here is held or worth more; counted as refused. `parent` as in the
  // frame's header; the namespace's id for the first block of a chain, and for every checkpoint.
  [[nodiscard]] std::optional<Slot> reserve(const BlockId& id, const BlockId& parent, std::uint64_t frame_bytes);
  // Makes the sealed frame visible, unless the block came by another way meanwhile.
  void commit(Slot slot);

  // A request used these blocks, in whatever tier.
  void touch(std::span<const BlockId> ids);
  // A lease that does not count as a use: for copying a block elsewhere.
  [[nodiscard]] Lease hold(const BlockId& id);

  // A pinned block is never evicted. False: not here, or half of the tier is pinned already.
  bool pin(const BlockId& id);
  bool unpin(const BlockId& id);

  // Gives up blocks, least worth first, until so many bytes of frames are gone or nothing more can go; what went.
  std::uint64_t evict(std::uint64_t bytes);
  // Everything but what is leased.
  void clear();

  struct Block {
    BlockId id;
    std::uint64_t bytes = 0;  // of the frame
    std::uint32_t leases = 0;
    bool pinned = false;
  };
  // At most so many, in no particular order.
  [[nodiscard]] std::vector<Block> list(std::size_t most) const;

  // ---- Tier ----
  [[nodiscard]] TierKind kind() const override { return TierKind::host; }
  std::size_t match(std::span<const BlockId> ids) override;
  [[nodiscard]] bool contains(const BlockId& id) override;
  Lease get(const BlockId& namespace_id, const BlockId& id) override;
  bool put(const BlockId& id, Bytes frame) override;
  bool erase(const BlockId& id) override;
  [[nodiscard]] TierStats stats() const override;

 private:
  class State;
  std::shared_ptr<State> state_;  // leases and slots keep it alive beyond the tier
};

}  // namespace caravan::kv
