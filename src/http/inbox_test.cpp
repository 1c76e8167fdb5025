#include "http/inbox.h"

#include <memory>
#include <string>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <gtest/gtest.h>

#include "http/wakeups.h"

namespace caravan::http {
namespace {

namespace asio = boost::asio;

class InboxTest : public testing::Test {
 protected:
  void say(std::string text) { mailbox_->listener(0)(engine::Delta{.choice = 0, .text = std::move(text)}); }

  // What a stream does: take what is there until there is nothing within `patience`.
  asio::awaitable<void> take_all(Duration patience) {
    while (rounds_ < 100) {
      const bool mail = co_await inbox_.wait(patience);
      if (!mail) co_return;
      ++rounds_;
      for (const Mail& each : inbox_.take()) text_ += std::get<engine::Delta>(each.event).text;
    }
  }

  asio::io_context context_;
  std::shared_ptr<Wakeups> wakeups_ = std::make_shared<Wakeups>(context_.get_executor());
  std::shared_ptr<Mailbox> mailbox_ = std::make_shared<Mailbox>(wakeups_, 16);
  int overflows_ = 0;
  Inbox inbox_{context_.get_executor(), mailbox_, [this] { ++overflows_; }};
  int rounds_ = 0;
  std::string text_;
};

TEST_F(InboxTest, HandsOverWhatCame) {
  say("one");
  say("two");
  asio::co_spawn(context_, take_all(std::chrono::milliseconds(1)), asio::detached);
  context_.run();
  EXPECT_EQ(text_, "onetwo");
  EXPECT_EQ(rounds_, 1) << "merged";
  EXPECT_EQ(overflows_, 0);
}

// The reader was busy while the mailbox overflowed, and comes back before the wakeup that tells it has run: it must
// wait for that, and not go round on the thread that would run it.
TEST_F(InboxTest, AnOverflowIsNoMail) {
  asio::post(context_, [this] { say("more than sixteen bytes"); });
  asio::co_spawn(context_, take_all(std::chrono::hours(1)), asio::detached);
  context_.run();
  EXPECT_EQ(rounds_, 0);
  EXPECT_EQ(overflows_, 1);
  EXPECT_EQ(text_, "");
}

TEST_F(InboxTest, AnOverflowBeforeTheReaderLooksIsToldOnce) {
  say("more than sixteen bytes");
  asio::co_spawn(context_, take_all(std::chrono::hours(1)), asio::detached);
  context_.run_one();  // the wakeup; nobody waits yet
  context_.run_for(std::chrono::milliseconds(50));
  EXPECT_EQ(rounds_, 0);
  EXPECT_EQ(overflows_, 1);
}

}  // namespace
}  // namespace caravan::http
