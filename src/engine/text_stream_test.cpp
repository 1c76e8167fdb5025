#include "engine/text_stream.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

namespace caravan::engine {
namespace {

struct Streamed {
  std::string text;
  std::optional<std::string> stop;
  bool every_delta_valid = true;
};

// Pushes `bytes` in pieces that end at `cuts`.
Streamed stream(const std::string& bytes, const std::vector<std::string>& stops, const std::vector<std::size_t>& cuts) {
  TextStream stream(stops);
  Streamed run;
  const auto take = [&](const TextStream::Output& output) {
    run.every_delta_valid = run.every_delta_valid && utf8_valid(output.text);
    run.text += output.text;
    if (output.stop) run.stop = output.stop;
  };
  std::size_t from = 0;
  for (const std::size_t cut : cuts) {
    if (run.stop) return run;
    take(stream.push(std::string_view(bytes).substr(from, cut - from)));
    from = cut;
  }
  if (!run.stop) take(stream.push(std::string_view(bytes).substr(from)));
  if (!run.stop) take(stream.finish());
  return run;
}

std::vector<std::size_t> every_byte(const std::string& bytes) {
  std::vector<std::size_t> cuts;
  for (std::size_t i = 1; i < bytes.size(); ++i) cuts.push_back(i);
  return cuts;
}

TEST(TextStream, StopStringsOverTokenBounds) {
  const Streamed run = stream("hello STOP world", {"STOP"}, {7, 9});
  EXPECT_EQ(run.text, "hello ");
  EXPECT_EQ(run.stop, "STOP");
}

TEST(TextStream, AStopThatIsNeverCompletedIsText) {
  const Streamed run = stream("hello STO", {"STOP"}, {7, 8});
  EXPECT_EQ(run.text, "hello STO");
  EXPECT_FALSE(run.stop);
}

TEST(TextStream, OverlappingStopsEndAtTheFirst) {
  EXPECT_EQ(stream("xabcdy", {"bcd", "abc"}, every_byte("xabcdy")).text, "x");
  EXPECT_EQ(stream("xaab", {"ab"}, every_byte("xaab")).text, "xa");
}

TEST(TextStream, ACharacterOfFourByteTokensComesWhole) {
  TextStream text({});
  EXPECT_EQ(text.push("\xF0").text, "");
  EXPECT_EQ(text.push("\x9F").text, "");
  EXPECT_EQ(text.push("\x98").text, "");
  EXPECT_EQ(text.push("\x80").text, "😀");
}

TEST(TextStream, BytesThatAreNoTextAreReplaced) {
  EXPECT_EQ(stream("a\xFF"
                   "b",
                   {}, {1})
                .text,
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(stream("a\xF0\x9F", {}, {2}).text, "a\xEF\xBF\xBD");
  EXPECT_EQ(stream("\xED\xA0\x80", {}, {1, 2}).text, "\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD");  // a lone surrogate
}

TEST(TextStream, AStopInsideACharacterIsFound) {
  const Streamed run = stream("a\xE9\x80\x80z", {"\x80z"}, every_byte("a\xE9\x80\x80z"));
  EXPECT_TRUE(run.every_delta_valid);
  EXPECT_EQ(run.stop, "\x80z");
}

TEST(TextStream, AStopThatBeginsAnotherMatchesAtOnce) {
  TextStream text({"abc", "ab"});
  EXPECT_FALSE(text.push("xa").stop);
  const TextStream::Output output = text.push("b");
  EXPECT_EQ(output.stop, "ab");
}

TEST(TextStream, NothingIsHeldLongerThanItCouldBecomeAStop) {
  TextStream text({"<end>", "\n\nUser:"});
  EXPECT_EQ(text.push("a <e").text, "a ");
  EXPECT_EQ(text.push("x").text, "<ex");
  EXPECT_EQ(text.push("\n").text, "");
  EXPECT_EQ(text.push("y").text, "\ny");
  EXPECT_EQ(text.push("\n\n\n").text, "\n");
}

// Rescanning what is held for each byte would take hours here.
TEST(TextStream, ALongStopThatNearlyMatchesCostsNoMoreThanAShortOne) {
  const std::string nearly(200'000, 'a');
  TextStream text({nearly + "b", nearly + "c"});
  std::string sent;
  for (int i = 0; i < 400'000; ++i) sent += text.push("a").text;
  sent += text.finish().text;
  EXPECT_EQ(sent, std::string(400'000, 'a'));
}

// What a decoder of the whole would give, without any stream.
std::string mended(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const Utf8Step step = utf8_step(bytes);
    text += step.length > 0 ? bytes.substr(0, step.length) : "\xEF\xBF\xBD";
    bytes.remove_prefix(step.length > 0 ? step.length : step.bad);
  }
  return text;
}

TEST(TextStream, AnySplitGivesTheTextBeforeTheFirstStop) {
  EXPECT_TRUE(rc::check("joined deltas == text before the first match", [] {
    const auto piece =
        rc::gen::element<std::string>("a", "b", "ab", "aa", "é", "退", "😀", "\xF0", "\x9F", "\xED\xA0", "\n");
    for (int round = 0; round < 20; ++round) {
      std::string bytes;
      for (const std::string& each : *rc::gen::container<std::vector<std::string>>(piece)) bytes += each;
      const auto stops = *rc::gen::container<std::vector<std::string>>(
          3, rc::gen::element<std::string>("ab", "ba", "退a", "bb\n", "aba", "aab", "abab", "\x80\x80", "a", "é退"));
      std::vector<std::size_t> cuts;
      for (std::size_t i = 1; i < bytes.size(); ++i) {
        if (*rc::gen::arbitrary<bool>()) cuts.push_back(i);
      }
      std::size_t first = std::string::npos;
      for (const std::string& stop : stops) first = std::min(first, bytes.find(stop));
      const Streamed split = stream(bytes, stops, cuts);
      RC_ASSERT(split.every_delta_valid);
      RC_ASSERT(split.text == mended(std::string_view(bytes).substr(0, first)));
      RC_ASSERT(split.stop.has_value() == (first != std::string::npos));
      if (split.stop) RC_ASSERT(bytes.substr(first).starts_with(*split.stop));
      RC_ASSERT(stream(bytes, stops, {}).stop == split.stop);
    }
  }));
}

}  // namespace
}  // namespace caravan::engine
