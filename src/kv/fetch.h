// One request's blocks on their way up: found by the cache, taken by the engine in order, as they come.
//
// The cache (or one of its workers) puts pieces; the engine takes them and never waits. Thread-safe.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "base/mutex.h"
#include "kv/tier.h"

namespace caravan::kv {

class Fetch {
 public:
  struct Piece {
    std::uint32_t block = 0;  // index in the chain; of a checkpoint: of the last block before it
    bool checkpoint = false;
    Lease lease;
  };

  // `wake` is called whenever there is something new to see. It may do anything but stop().
  explicit Fetch(std::function<void()> wake) : wake_(std::move(wake)) {}

  // For the engine.
  std::optional<Piece> take() {
    const Lock lock(mutex_);
    if (pieces_.empty()) return std::nullopt;
    Piece piece = std::move(pieces_.front());
    pieces_.pop_front();
    return piece;
  }
  // Nothing more will come, and all that came was taken.
  [[nodiscard]] bool finished() const {
    const Lock lock(mutex_);
    return closed_ && pieces_.empty();
  }
  // No more is wanted: leases that were not taken are released, and once this returns nobody is woken.
  void stop() {
    std::deque<Piece> released;
    const Lock waking(wake_mutex_);
    const Lock lock(mutex_);
    stopped_ = closed_ = true;
    released.swap(pieces_);
  }

  // For the cache. False: no more is wanted.
  bool put(Piece piece) {
    {
      const Lock lock(mutex_);
      if (stopped_) return false;
      pieces_.push_back(std::move(piece));
    }
    wake();
    return true;
  }
  void close() {
    {
      const Lock lock(mutex_);
      closed_ = true;
    }
    wake();
  }
  [[nodiscard]] bool stopped() const {
    const Lock lock(mutex_);
    return stopped_;
  }

 private:
  void wake() {
    const Lock waking(wake_mutex_);
    if (wake_ && !stopped()) wake_();
  }

  const std::function<void()> wake_;
  Mutex wake_mutex_;  // taken before the other
  mutable Mutex mutex_;
  std::deque<Piece> pieces_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
  bool stopped_ GUARDED_BY(mutex_) = false;
};

}  // namespace caravan::kv
