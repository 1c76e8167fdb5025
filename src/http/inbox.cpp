#include "http/inbox.h"

#include <utility>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace caravan::http {

Inbox::Inbox(const boost::asio::any_io_executor& executor, std::shared_ptr<Mailbox> mailbox,
             std::function<void()> on_overflow)
    : timer_(executor), mailbox_(std::move(mailbox)), on_overflow_(std::move(on_overflow)) {
  mailbox_->set_on_mail([this] { on_mail(); });
}

Inbox::~Inbox() { mailbox_->set_on_mail({}); }

void Inbox::on_mail() {
  if (mailbox_->overflowed()) on_overflow_();
  timer_.cancel();
}

boost::asio::awaitable<bool> Inbox::wait(Duration patience) {
  if (!mailbox_->empty()) co_return true;
  timer_.expires_after(patience);
  co_await timer_.async_wait(boost::asio::as_tuple(boost::asio::use_awaitable));
  co_return !mailbox_->empty();
}

}  // namespace caravan::http
