// std::mutex that clang's -Wthread-safety can check: members say GUARDED_BY(mutex_), and a Lock is held around each
// use.
#pragma once

#include <condition_variable>
#include <mutex>

#if defined(__clang__)
#define CARAVAN_ATTRIBUTE(x) __attribute__((x))
#else
#define CARAVAN_ATTRIBUTE(x)
#endif
#define GUARDED_BY(mutex) CARAVAN_ATTRIBUTE(guarded_by(mutex))
#define REQUIRES(mutex) CARAVAN_ATTRIBUTE(requires_capability(mutex))

namespace caravan {

class CARAVAN_ATTRIBUTE(capability("mutex")) Mutex {
 public:
  void lock() CARAVAN_ATTRIBUTE(acquire_capability()) { mutex_.lock(); }
  void unlock() CARAVAN_ATTRIBUTE(release_capability()) { mutex_.unlock(); }

 private:
  friend class Lock;
  std::mutex mutex_;
};

class CARAVAN_ATTRIBUTE(scoped_lockable) Lock {
 public:
  explicit Lock(Mutex& mutex) CARAVAN_ATTRIBUTE(acquire_capability(mutex)) : lock_(mutex.mutex_) {}
  ~Lock() CARAVAN_ATTRIBUTE(release_capability()) {}
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

  void wait(std::condition_variable& condition) { condition.wait(lock_); }
  template <class TimePoint>
  void wait_until(std::condition_variable& condition, TimePoint deadline) {
    condition.wait_until(lock_, deadline);
  }

 private:
  std::unique_lock<std::mutex> lock_;
};

}  // namespace caravan
