#include "cli/bench/text.h"

#include <functional>
#include <set>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace caravan::cli::bench {
namespace {

using Counter = std::function<std::size_t(const std::string&)>;

// A token for each three letters begun of a word, and for each other character but a space.
std::size_t syllables(const std::string& text) {
  std::size_t tokens = 0;
  std::size_t run = 0;
  for (const char c : text) {
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (letter && run++ % 3 == 0) ++tokens;
    if (!letter) run = 0;
    if (!letter && c != ' ') ++tokens;
  }
  return tokens;
}
std::size_t letters(const std::string& text) { return text.size(); }

int fit(TextFitter& fitter, const Counter& counter) {
  int calls = 1;
  while (!fitter.count(counter(fitter.candidate()))) ++calls;
  return calls;
}

TEST(TextFitter, HitsTheNumberWithAnyTokenizer) {
  for (const Counter& counter : {Counter(syllables), Counter(letters)}) {
    for (const std::uint32_t tokens : {1U, 2U, 3U, 7U, 64U, 500U, 2000U}) {
      TextFitter fitter({.seed = 5, .tokens = tokens});
      const int calls = fit(fitter, counter);
      EXPECT_TRUE(fitter.exact()) << tokens;
      EXPECT_EQ(counter(fitter.candidate()), tokens);
      EXPECT_LE(calls, 40) << tokens;
    }
  }
}

TEST(TextFitter, SaysWhenItCannot) {
  TextFitter fitter({.seed = 5, .tokens = 10});
  fit(fitter, [](const std::string& text) { return 3 * text.size(); });
  EXPECT_FALSE(fitter.exact());
  TextFitter endless({.seed = 5, .tokens = 10});
  EXPECT_LE(fit(endless, [](const std::string&) { return std::size_t{0}; }), TextFitter::attempts_max);
  EXPECT_FALSE(endless.exact());
}

RC_GTEST_PROP(TextFitter, HitsAnyNumber, ()) {
  const auto tokens = *rc::gen::inRange<std::uint32_t>(1, 3000);
  TextFitter fitter({.seed = *rc::gen::arbitrary<std::uint64_t>(), .tokens = tokens});
  fit(fitter, syllables);
  RC_ASSERT(fitter.exact());
}

TEST(Words, DifferBySeedFromTheBeginning) {
  std::set<std::string> seen;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) seen.insert(words(seed, 8));
  EXPECT_EQ(seen.size(), 1000U);
  EXPECT_EQ(words(3, 10).substr(0, words(3, 5).size()), words(3, 5)) << "longer texts begin as shorter ones do";
}

}  // namespace
}  // namespace caravan::cli::bench
