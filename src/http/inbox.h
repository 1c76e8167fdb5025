// The network thread's end of a mailbox: waits for mail without blocking. For http/ alone: Asio is in here.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/steady_timer.hpp>

#include "base/clock.h"
#include "http/mailbox.h"

namespace caravan::http {

class Inbox {
 public:
  // `on_overflow` is called when the client has left more unread than the mailbox may hold.
  Inbox(const boost::asio::any_io_executor& executor, std::shared_ptr<Mailbox> mailbox,
        std::function<void()> on_overflow);
  ~Inbox();
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  // Until there is mail (true), or for `patience` at the most (false).
  boost::asio::awaitable<bool> wait(Duration patience);
  [[nodiscard]] std::vector<Mail> take() { return mailbox_->take(); }

 private:
  void on_mail();

  boost::asio::steady_timer timer_;
  std::shared_ptr<Mailbox> mailbox_;
  std::function<void()> on_overflow_;
};

}  // namespace caravan::http
