// What the engine has said to one client and the network thread has not yet taken. A client that does not read makes
// no queue of events: deltas of one choice are merged, and past a bound the mailbox overflows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/request.h"

namespace caravan::http {

class Wakeups;

// An event of the `prompt`-th of the engine requests that one HTTP request was turned into.
struct Mail {
  std::uint32_t prompt = 0;
  engine::Event event;
};

class Mailbox : public std::enable_shared_from_this<Mailbox> {
 public:
  // `bytes_max`: text and logprobs that may wait; 0: no bound (the reader is ourselves, and never waits for a client).
  Mailbox(std::shared_ptr<Wakeups> wakeups, std::size_t bytes_max);

  // The listener for one engine request.
  engine::Listener listener(std::uint32_t prompt);

  // The network thread from here on.
  [[nodiscard]] std::vector<Mail> take();
  [[nodiscard]] bool empty() const;
  // More was waiting than bytes_max; that, and what came after it, was dropped: an overflow is no mail.
  [[nodiscard]] bool overflowed() const;
  // `on_mail` is called by wake() while there is mail; empty: nobody waits.
  void set_on_mail(std::function<void()> on_mail) { on_mail_ = std::move(on_mail); }
  void wake();

 private:
  void deliver(std::uint32_t prompt, engine::Event event);
  void put(std::uint32_t prompt, engine::Event event);

  const std::shared_ptr<Wakeups> wakeups_;
  const std::size_t bytes_max_;
  std::function<void()> on_mail_;  // network thread alone

  mutable std::mutex mutex_;
  std::vector<Mail> mails_;    // guarded by mutex_
  std::size_t bytes_ = 0;      // guarded by mutex_
  bool overflowed_ = false;    // guarded by mutex_
  bool wake_pending_ = false;  // guarded by mutex_
};

}  // namespace caravan::http
