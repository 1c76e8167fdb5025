#include "kv/session_book.h"

#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace caravan::kv {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::IsEmpty;
using testing::SizeIs;

class Sessions : public testing::Test {
 protected:
  // Blocks of a conversation: a number for each, equal numbers in front mean equal beginnings.
  static std::vector<BlockId> blocks(std::uint32_t conversation, std::uint32_t count) {
    std::vector<BlockId> ids;
    BlockId parent;
    for (std::uint32_t i = 0; i < count; ++i) {
      const Token tokens[] = {static_cast<Token>(conversation), static_cast<Token>(i)};
      ids.push_back(parent = block_id(parent, tokens));
    }
    return ids;
  }
  SessionId turn(std::string_view name, std::uint32_t conversation, std::uint32_t count, std::string_view tenant = "") {
    const SessionId id = book.begin(tenant, name, blocks(conversation, count), now);
    book.end(id, BlockId{}, blocks(conversation, count + 1), now);
    return id;
  }

  SessionBook book{{}};
  TimePoint now = TimePoint{} + seconds(1000);
};

TEST_F(Sessions, AreNamedByTheirClientOrFoundByTheirPrefix) {
  EXPECT_EQ(turn("a", 1, 3), turn("a", 2, 3));
  EXPECT_NE(turn("a", 1, 3), turn("b", 1, 3));
  EXPECT_NE(turn("a", 1, 3, "x"), turn("a", 1, 3, "y"));
  const SessionId first = turn("", 7, 3);
  EXPECT_EQ(turn("", 7, 6), first);
  EXPECT_NE(turn("", 8, 6), first);
  EXPECT_NE(turn("", 7, 9, "other tenant"), first);
}

// With one system prompt and questions shorter than a block, the last whole block is everybody's.
TEST_F(Sessions, ThatEndInTheSameBlockAreNotTakenForOneAnother) {
  const auto same = blocks(1, 5);
  const SessionId a = book.begin("", "", same, now);
  const SessionId b = book.begin("", "", same, now);
  EXPECT_NE(a, b);
  book.end(a, BlockId{}, same, now);
  book.end(b, BlockId{}, same, now);
  const SessionId c = book.begin("", "", same, now);
  EXPECT_NE(c, a);
  EXPECT_NE(c, b);
}

TEST_F(Sessions, GoDownOnceTheyAreIdle) {
  turn("a", 1, 3);
  EXPECT_THAT(book.take_idle(now + seconds(1)), IsEmpty());
  const auto taken = book.take_idle(now + seconds(2));
  ASSERT_THAT(taken, SizeIs(1));
  EXPECT_EQ(taken[0].blocks, blocks(1, 4));
  EXPECT_THAT(book.take_idle(now + seconds(9)), IsEmpty());  // once a turn

  now += seconds(10);
  const SessionId running = book.begin("", "a", blocks(1, 5), now);
  EXPECT_THAT(book.take_idle(now + seconds(60)), IsEmpty());  // not while it runs
  book.end(running, BlockId{}, blocks(1, 6), now + seconds(60));
  EXPECT_THAT(book.take_idle(now + seconds(62)), SizeIs(1));
}

TEST_F(Sessions, AreExpectedAtTheirOwnRhythm) {
  for (int i = 0; i < 5; ++i) {
    turn("regular", 1, 3);
    now += seconds(20);
  }
  now -= seconds(20);
  EXPECT_THAT(book.take_expected(now + seconds(1)), IsEmpty());
  const auto taken = book.take_expected(now + seconds(20));
  ASSERT_THAT(taken, SizeIs(1));
  EXPECT_EQ(taken[0].blocks, blocks(1, 4));
  EXPECT_THAT(book.take_expected(now + seconds(20)), IsEmpty());
  ASSERT_THAT(book.list(now, 9), SizeIs(1));
  EXPECT_EQ(book.list(now, 9)[0].next_turn, Duration(seconds(20)));
  now += seconds(21);
  turn("regular", 1, 3);
  EXPECT_EQ(book.forecasts().met, 1U);

  // And one that does not come.
  EXPECT_THAT(book.take_expected(now + seconds(20)), SizeIs(1));
  EXPECT_THAT(book.take_expected(now + seconds(3000)), IsEmpty());
  EXPECT_EQ(book.forecasts().missed, 1U);
  now += seconds(3000);
  turn("regular", 1, 3);
  EXPECT_EQ(book.forecasts().met, 1U);
}

TEST_F(Sessions, WithoutARhythmAreNotExpected) {
  turn("once", 1, 3);
  turn("twice", 2, 3);
  now += seconds(5);
  turn("twice", 2, 3);
  EXPECT_THAT(book.take_expected(now + seconds(3600)), IsEmpty());
}

TEST_F(Sessions, AreForgottenWhenThereAreTooMany) {
  SessionBook small({.sessions_max = 100, .blocks_max = 50});
  for (std::uint32_t i = 0; i < 1000; ++i) {
    now += milliseconds(1);
    const SessionId id = small.begin("", i % 2 == 0 ? "" : std::to_string(i), blocks(i, 3), now);
    small.end(id, BlockId{}, blocks(i, 4), now);
    EXPECT_LE(small.size(), 13U);
  }
  EXPECT_LE(small.take_idle(now + seconds(10)).size(), 13U);
  EXPECT_THAT(small.take_expected(now + seconds(10)), IsEmpty());
  small.end(1, BlockId{}, blocks(1, 4), now);  // one that is gone
}

}  // namespace
}  // namespace caravan::kv
