#include "cli/bench/statistics.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace caravan::cli::bench {
namespace {

TEST(Statistics, QuantilesLieBetweenNeighbours) {
  const std::vector<double> values{1, 2, 3, 4, 5};
  EXPECT_DOUBLE_EQ(quantile(values, 0), 1);
  EXPECT_DOUBLE_EQ(quantile(values, 0.5), 3);
  EXPECT_DOUBLE_EQ(quantile(values, 0.9), 4.6);
  EXPECT_DOUBLE_EQ(quantile(values, 1), 5);
  EXPECT_DOUBLE_EQ(quantile({}, 0.5), 0);
  EXPECT_DOUBLE_EQ(quantile({7}, 0.99), 7);
}

TEST(Statistics, SummaryTakesValuesInAnyOrder) {
  const Summary summary = summarize({30, 10, 20});
  EXPECT_EQ(summary.count, 3U);
  EXPECT_DOUBLE_EQ(summary.mean, 20);
  EXPECT_DOUBLE_EQ(summary.p50, 20);
  EXPECT_DOUBLE_EQ(summary.max, 30);
  EXPECT_EQ(summarize({}).count, 0U);
}

RC_GTEST_PROP(Statistics, QuantilesGrowAndStayInside, (const std::vector<int>& given)) {
  RC_PRE(!given.empty());
  const Summary summary = summarize({given.begin(), given.end()});
  RC_ASSERT(summary.p50 <= summary.p90);
  RC_ASSERT(summary.p90 <= summary.p99);
  RC_ASSERT(summary.p99 <= summary.max);
  RC_ASSERT(summary.p50 >= *std::min_element(given.begin(), given.end()));
}

}  // namespace
}  // namespace caravan::cli::bench
