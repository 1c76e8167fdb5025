#include "engine/prefix.h"

#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace caravan::engine {
namespace {

std::vector<Token> counting(Token from, std::size_t length) {
  std::vector<Token> tokens(length);
  std::iota(tokens.begin(), tokens.end(), from);
  return tokens;
}

std::vector<Token> operator+(std::vector<Token> a, const std::vector<Token>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(CommonPrefix, EndsAtTheFirstDifference) {
  EXPECT_EQ(common_prefix(counting(0, 10) + counting(50, 5), counting(0, 10) + counting(60, 5)), 10U);
  EXPECT_EQ(common_prefix(counting(0, 10), counting(0, 4)), 4U);
  EXPECT_EQ(common_prefix({}, counting(0, 4)), 0U);
}

TEST(SharedAfter, FindsWhatACounterAtTheFrontCost) {
  const auto chat = counting(1000, 500);
  const auto before = counting(0, 3) + chat;
  const auto now = counting(7, 4) + chat + counting(5000, 20);
  EXPECT_EQ(shared_after(now, 0, before), 500U);
}

TEST(SharedAfter, IsZeroForUnrelatedTokens) {
  EXPECT_EQ(shared_after(counting(0, 400), 0, counting(5000, 400)), 0U);
  EXPECT_EQ(shared_after(counting(0, 8), 0, counting(0, 8)), 0U);  // shorter than a run
}

TEST(SharedAfter, CountsNothingTwice) {
  const auto part = counting(100, 40);
  EXPECT_LE(shared_after(part + part, 0, part), 80U);
  EXPECT_LE(shared_after(part, 0, part + part), 40U);
}

}  // namespace
}  // namespace caravan::engine
