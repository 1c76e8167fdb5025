// Many threads put, one takes all. Putting never waits for the taker. The bound is the caller's: what may be put is
// limited before (the engine bounds its queue at submit), so the mailbox itself need not refuse.
#pragma once

#include <condition_variable>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"

namespace caravan {

template <class Item>
class Mailbox {
 public:
  void put(Item item) {
    {
      const Lock lock(mutex_);
      items_.push_back(std::move(item));
    }
    arrived_.notify_one();
  }

  // Everything that was put since the last call, in order; empty at once if there is nothing.
  std::vector<Item> take() {
    const Lock lock(mutex_);
    return std::exchange(items_, {});
  }

  // Waits until there is something to take, or until `deadline`.
  void wait_until(TimePoint deadline) {
    Lock lock(mutex_);
    while (items_.empty() && Clock::now() < deadline) lock.wait_until(arrived_, deadline);
  }

 private:
  Mutex mutex_;
  std::condition_variable arrived_;
  std::vector<Item> items_ GUARDED_BY(mutex_);
};

}  // namespace caravan
