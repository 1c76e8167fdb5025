// How the engine thread tells the network thread that something came for its streams: one post for all of them, however
// many they are, until the network thread has taken note.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include <boost/asio/any_io_executor.hpp>

namespace caravan::http {

class Mailbox;

class Wakeups : public std::enable_shared_from_this<Wakeups> {
 public:
  explicit Wakeups(boost::asio::any_io_executor executor) : executor_(std::move(executor)) {}

  // Any thread. After close: does nothing.
  void add(std::shared_ptr<Mailbox> mailbox);
  // Before the executor's context goes: nothing is posted any more.
  void close();

 private:
  void wake_all();

  std::mutex mutex_;
  boost::asio::any_io_executor executor_;
  std::vector<std::shared_ptr<Mailbox>> ready_;  // guarded by mutex_
  bool closed_ = false;                          // guarded by mutex_
};

}  // namespace caravan::http
