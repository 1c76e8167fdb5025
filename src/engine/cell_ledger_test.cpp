#include "engine/cell_ledger.h"

#include <map>
#include <set>

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace caravan::engine {
namespace {

TEST(CellLedger, ASharedPrefixCountsOnce) {
  CellLedger ledger(4, 1000);
  ledger.append(0, 300);
  ledger.share(0, 1, 200);
  ledger.append(1, 50);
  EXPECT_EQ(ledger.used(), 350U);
  EXPECT_EQ(ledger.length(1), 250U);
  EXPECT_EQ(ledger.unshared_from(0), 200U);
  EXPECT_EQ(ledger.unshared_from(1), 200U);
}

TEST(CellLedger, TheTrunkStaysWhileAnybodyHoldsIt) {
  CellLedger ledger(4, 1000);
  ledger.append(0, 300);
  ledger.share(0, 1, 200);
  ledger.trim(0, 0);
  EXPECT_EQ(ledger.used(), 200U);
  EXPECT_EQ(ledger.unshared_from(1), 0U);
  ledger.trim(1, 0);
  EXPECT_EQ(ledger.used(), 0U);
  EXPECT_EQ(ledger.peak(), 300U);
}

TEST(CellLedger, AgreesWithAPlainModel) {
  EXPECT_TRUE(rc::check("used == number of distinct cells held", [] {
    constexpr std::uint32_t sequences = 5;
    CellLedger ledger(sequences, 200);
    std::map<std::uint32_t, std::vector<int>> model;
    int next = 0;
    const auto used = [&] {
      std::set<int> distinct;
      for (const auto& [sequence, cells] : model) distinct.insert(cells.begin(), cells.end());
      return distinct.size();
    };
    for (int i = 0; i < 60; ++i) {
      const auto a = *rc::gen::inRange<std::uint32_t>(0, sequences);
      const auto b = *rc::gen::inRange<std::uint32_t>(0, sequences);
      const auto n = *rc::gen::inRange<std::uint32_t>(0, 20);
      switch (*rc::gen::inRange(0, 3)) {
        case 0:
          if (n > ledger.free()) break;
          ledger.append(a, n);
          for (std::uint32_t k = 0; k < n; ++k) model[a].push_back(next++);
          break;
        case 1: {
          if (a == b || !model[b].empty()) break;
          const auto length = std::min<std::uint32_t>(n, static_cast<std::uint32_t>(model[a].size()));
          ledger.share(a, b, length);
          model[b].assign(model[a].begin(), model[a].begin() + length);
          break;
        }
        default:
          ledger.trim(a, n);
          if (n < model[a].size()) model[a].resize(n);
      }
      RC_ASSERT(ledger.used() == used());
      RC_ASSERT(ledger.length(a) == model[a].size());
    }
  }));
}

}  // namespace
}  // namespace caravan::engine
