// A thread that does bounded work in order. Work that does not fit is refused, so a slow disk makes nobody wait.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "base/mutex.h"

namespace caravan {

class Worker {
 public:
  using Task = std::move_only_function<void()>;

  explicit Worker(std::size_t tasks_max) : tasks_max_(tasks_max), thread_([this] { run(); }) {}
  // Finishes the task that runs; drops those that wait.
  ~Worker() {
    {
      const Lock lock(mutex_);
      stopped_ = true;
    }
    arrived_.notify_all();
    thread_.join();
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // False: too much waits already, and the task was not taken.
  bool post(Task task) {
    {
      const Lock lock(mutex_);
      if (stopped_ || tasks_.size() >= tasks_max_) return false;
      tasks_.push_back(std::move(task));
    }
    arrived_.notify_all();
    return true;
  }
  // Waits until nothing runs or waits, or until `deadline`; whether nothing does.
  bool wait_idle(TimePoint deadline) {
    Lock lock(mutex_);
    while ((running_ || !tasks_.empty()) && Clock::now() < deadline) lock.wait_until(finished_, deadline);
    return !running_ && tasks_.empty();
  }
  [[nodiscard]] std::size_t waiting() {
    const Lock lock(mutex_);
    return tasks_.size();
  }

 private:
  void run() {
    while (true) {
      Task task;
      {
        Lock lock(mutex_);
        running_ = false;
        if (tasks_.empty()) finished_.notify_all();
        while (tasks_.empty() && !stopped_) lock.wait(arrived_);
        if (stopped_) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
        running_ = true;
      }
      task();
    }
  }

  const std::size_t tasks_max_;
  Mutex mutex_;
  std::condition_variable arrived_;
  std::condition_variable finished_;
  std::deque<Task> tasks_ GUARDED_BY(mutex_);
  bool stopped_ GUARDED_BY(mutex_) = false;
  bool running_ GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace caravan
