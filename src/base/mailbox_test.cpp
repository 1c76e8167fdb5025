#include "base/mailbox.h"

#include <thread>

#include <gtest/gtest.h>

namespace caravan {
namespace {

TEST(Mailbox, GivesEverythingInOrderToOneTaker) {
  Mailbox<int> mailbox;
  std::thread writer([&] {
    for (int i = 0; i < 1000; ++i) mailbox.put(i);
  });
  std::vector<int> taken;
  while (taken.size() < 1000) {
    mailbox.wait_until(Clock::now() + std::chrono::seconds(5));
    for (const int item : mailbox.take()) taken.push_back(item);
  }
  writer.join();
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(taken[static_cast<std::size_t>(i)], i);
  EXPECT_TRUE(mailbox.take().empty());
}

TEST(Mailbox, WaitingEndsAtTheDeadline) {
  Mailbox<int> mailbox;
  mailbox.wait_until(Clock::now() + std::chrono::milliseconds(5));
  EXPECT_TRUE(mailbox.take().empty());
}

}  // namespace
}  // namespace caravan
