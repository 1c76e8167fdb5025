#include "cli/bench/event_stream.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace caravan::cli::bench {
namespace {

using Events = std::vector<std::string>;

TEST(EventStream, TakesDataAndLeavesTheRest) {
  EventStream stream;
  EXPECT_EQ(stream.feed(": keep-alive\n\nevent: x\nid: 3\ndata: one\n\ndata:two\n\ndatax: no\n\n"),
            (Events{"one", "two"}));
}

TEST(EventStream, JoinsLinesOfOneEvent) {
  EventStream stream;
  EXPECT_EQ(stream.feed("data: a\ndata: b\ndata\n\n"), (Events{"a\nb\n"}));
}

TEST(EventStream, AllLineEnds) {
  EventStream stream;
  EXPECT_EQ(stream.feed("data: a\r\n\r\ndata: b\r\rdata: c\n\n"), (Events{"a", "b", "c"}));
}

TEST(EventStream, AnUnfinishedEventIsNotGiven) {
  EventStream stream;
  EXPECT_EQ(stream.feed("data: a\n"), Events{});
  EXPECT_EQ(stream.feed("\n"), Events{"a"});
}

RC_GTEST_PROP(EventStream, CutsChangeNothing, ()) {
  const std::string text =
      "\xEF\xBB\xBF"
      "data: first\r\n\r\n: note\r\ndata: {\"a\":\"\xE6\xA8\xA1\"}\n\ndata: x\rdata: y\r\rdata: [DONE]\n\n";
  EventStream whole;
  const Events expected = whole.feed(text);
  RC_ASSERT(expected == (Events{"first", "{\"a\":\"\xE6\xA8\xA1\"}", "x\ny", "[DONE]"}));
  EventStream cut;
  Events got;
  for (std::size_t at = 0; at < text.size();) {
    const auto length = *rc::gen::inRange<std::size_t>(1, 9);
    for (auto& event : cut.feed(std::string_view(text).substr(at, length))) got.push_back(std::move(event));
    at += length;
  }
  RC_ASSERT(got == expected);
}

TEST(EventStream, AnEndlessLineIsGivenUp) {
  EventStream stream;
  const std::string megabyte(1 << 20, 'x');
  for (int i = 0; i < 20; ++i) stream.feed(megabyte);
  EXPECT_TRUE(stream.overflowed());
}

}  // namespace
}  // namespace caravan::cli::bench
