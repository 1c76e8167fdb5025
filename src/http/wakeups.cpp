#include "http/wakeups.h"

#include <utility>

#include <boost/asio/post.hpp>

#include "http/mailbox.h"

namespace caravan::http {

void Wakeups::add(std::shared_ptr<Mailbox> mailbox) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  ready_.push_back(std::move(mailbox));
  if (ready_.size() == 1) boost::asio::post(executor_, [self = shared_from_this()] { self->wake_all(); });
}

void Wakeups::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  ready_.clear();
}

void Wakeups::wake_all() {
  std::vector<std::shared_ptr<Mailbox>> ready;
  {
    const std::lock_guard lock(mutex_);
    ready.swap(ready_);
  }
  for (const auto& mailbox : ready) mailbox->wake();
}

}  // namespace caravan::http
