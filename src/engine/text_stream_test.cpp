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
  const auto take = [&](TextStream::Output output) {
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

TEST(TextStream, AnySplitGivesTheTextBeforeTheFirstStop) {
  EXPECT_TRUE(rc::check("joined deltas == text before the first match", [] {
    const auto piece = rc::gen::element<std::string>("a", "b", "ab", "é", "退", "😀", "\xF0", "\x9F", "\n");
    std::string bytes;
    for (const std::string& each : *rc::gen::container<std::vector<std::string>>(piece)) bytes += each;
    auto stops = *rc::gen::container<std::vector<std::string>>(
        3, rc::gen::element<std::string>("ab", "ba", "退a", "bb\n", "aba"));
    std::vector<std::size_t> cuts;
    for (std::size_t i = 1; i < bytes.size(); ++i) {
      if (*rc::gen::arbitrary<bool>()) cuts.push_back(i);
    }
    const Streamed whole = stream(bytes, stops, {});
    const Streamed split = stream(bytes, stops, cuts);
    RC_ASSERT(split.every_delta_valid);
    RC_ASSERT(split.text == whole.text);
    std::size_t first = std::string::npos;
    for (const std::string& stop : stops) first = std::min(first, bytes.find(stop));
    RC_ASSERT(split.stop.has_value() == (first != std::string::npos));
  }));
}

}  // namespace
}  // namespace caravan::engine
