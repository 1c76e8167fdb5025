// The one interface of everything that keeps blocks beside the device: host, store, peers, remote.
//
// A tier keeps frames (kv/block_format.h) by id. What it hands out is checked and cannot change or go away while its
// lease lives. A miss is an empty value; a tier's trouble is a miss too, counted by the tier (I5).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "base/result.h"
#include "kv/block.h"
#include "kv/block_format.h"

namespace caravan::kv {

enum class TierKind : std::uint8_t { device, host, store, peer, remote };
inline constexpr std::size_t tier_kinds = 5;
const char* name_of(TierKind kind);

// A found block: while the lease lives, the frame's bytes stay where they are and as they are. Move-only; may be
// released on any thread. The frame is raw (never compressed) and was verified before it came here.
class Lease {
 public:
  Lease() = default;
  Lease(TierKind tier, Bytes frame, std::shared_ptr<const void> owner)
      : tier_(tier), frame_(frame), owner_(std::move(owner)) {}
  Lease(Lease&& other) noexcept
      : tier_(other.tier_), frame_(std::exchange(other.frame_, {})), owner_(std::move(other.owner_)) {}
  Lease& operator=(Lease&& other) noexcept {
    tier_ = other.tier_;
    frame_ = std::exchange(other.frame_, {});
    owner_ = std::move(other.owner_);
    return *this;
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  ~Lease() = default;

  explicit operator bool() const { return owner_ != nullptr; }
  [[nodiscard]] TierKind tier() const { return tier_; }
  [[nodiscard]] Bytes frame() const { return frame_; }

 private:
  TierKind tier_ = TierKind::host;
  Bytes frame_;
  std::shared_ptr<const void> owner_;  // whatever keeps the bytes: a pin in the host tier, a read transaction, a buffer
};

struct TierStats {
  std::uint64_t blocks = 0;
  std::uint64_t bytes = 0;  // everything that is kept, metadata too
  std::uint64_t bytes_limit = 0;
  std::uint64_t frame_bytes = 0;  // of the blocks alone: the sum over what is listed
  std::uint64_t leased = 0;       // blocks under lease now
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t inserted = 0;
  std::uint64_t evicted = 0;
  std::uint64_t refused = 0;   // puts without room, or larger than the tier
  std::uint64_t failures = 0;  // frames that were damaged, and I/O that failed
  bool degraded = false;       // not written to for now (a full disk, ...); tried again by itself
};

// Thread-safe. The calls that may wait for a disk or a network say so; the engine thread never makes those.
class Tier {
 public:
  virtual ~Tier() = default;
  [[nodiscard]] virtual TierKind kind() const = 0;
  // How many of `ids` from the front are here. May wait (store, peer, remote); the host's does not.
  virtual std::size_t match(std::span<const BlockId> ids) = 0;
  [[nodiscard]] virtual bool contains(const BlockId& id) = 0;
  // A verified frame; empty for a miss. A frame that fails its check is removed and counted. May wait.
  virtual Lease get(const BlockId& namespace_id, const BlockId& id) = 0;
  // Keeps a copy of a sealed raw frame. False: not kept (no room, degraded). Visible only once it is whole. May wait.
  virtual bool put(const BlockId& id, Bytes frame) = 0;
  virtual bool erase(const BlockId& id) = 0;
  [[nodiscard]] virtual TierStats stats() const = 0;
};

}  // namespace caravan::kv
