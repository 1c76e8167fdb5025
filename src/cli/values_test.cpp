#include "cli/values.h"

#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace caravan::cli {
namespace {

TEST(Bytes, AreReadWithBinaryMultiples) {
  EXPECT_EQ(parse_bytes("4096").value(), 4096U);
  EXPECT_EQ(parse_bytes("512M").value(), 512ULL << 20);
  EXPECT_EQ(parse_bytes("8g").value(), 8ULL << 30);
  EXPECT_EQ(parse_bytes("1.5G").value(), 3ULL << 29);
  EXPECT_EQ(parse_bytes("2GiB").value(), 2ULL << 30);
  EXPECT_EQ(parse_bytes("64KB").value(), 64ULL << 10);
  EXPECT_EQ(parse_bytes("0").value(), 0U);
}

TEST(Bytes, RefuseWhatIsNotASize) {
  for (const char* text : {"", "G", "-1", "8X", "8GG", "1e3", "0.3", "nan", "inf", " 8G", "8 G", "99999999T", "1MK"}) {
    EXPECT_FALSE(parse_bytes(text).has_value()) << text;
  }
}

TEST(Bytes, FormatIsShort) {
  EXPECT_EQ(format_bytes(0), "0");
  EXPECT_EQ(format_bytes(1000), "1000");
  EXPECT_EQ(format_bytes(32ULL << 20), "32M");
  EXPECT_EQ(format_bytes(3ULL << 29), "1.5G");
}

RC_GTEST_PROP(Bytes, WholeMultiplesComeBack, ()) {
  const auto unit = *rc::gen::element(0, 10, 20, 30);
  const auto bytes = *rc::gen::inRange<std::uint64_t>(0, 1023) << unit;
  RC_ASSERT(parse_bytes(format_bytes(bytes)).value() == bytes);
}

RC_GTEST_PROP(Bytes, AnyTextIsAnsweredWithoutHarm, (const std::string& text)) {
  const auto answered = [](const auto& parsed) { return parsed.has_value() || !parsed.error().message.empty(); };
  RC_ASSERT(answered(parse_bytes(text)));
  RC_ASSERT(answered(parse_duration(text)));
  RC_ASSERT(answered(parse_number(text, 0, 1)));
}

TEST(Integer, KeepsItsRangeAndSaysIt) {
  EXPECT_EQ(parse_integer("-1", -1, 5).value(), -1);
  EXPECT_EQ(parse_integer("70000", 0, 65535).error().message, "give a whole number from 0 to 65535");
  for (const char* text : {"", "1x", "1.0", "+1", "99999999999999999999"}) {
    EXPECT_FALSE(parse_integer(text, 0, 100).has_value()) << text;
  }
}

TEST(Durations, TakeUnits) {
  EXPECT_EQ(parse_duration("30").value(), std::chrono::seconds(30));
  EXPECT_EQ(parse_duration("500ms").value(), std::chrono::milliseconds(500));
  EXPECT_EQ(parse_duration("2m").value(), std::chrono::minutes(2));
  EXPECT_EQ(parse_duration("0").value(), Duration{});
  EXPECT_FALSE(parse_duration("5 s").has_value());
  EXPECT_FALSE(parse_duration("-5s").has_value());
  EXPECT_FALSE(parse_duration("1e9h").has_value());
  EXPECT_EQ(format_duration(std::chrono::milliseconds(250)), "250ms");
  EXPECT_EQ(format_duration(std::chrono::seconds(30)), "30s");
}

TEST(Switches, TakeTheUsualWords) {
  EXPECT_TRUE(parse_switch("On").value());
  EXPECT_FALSE(parse_switch("0").value());
  EXPECT_FALSE(parse_switch("maybe").has_value());
}

TEST(NearestName, FindsTypingMistakesAndNothingElse) {
  const std::vector<std::string> names{"kvsize", "kv-cache", "host", "port", "parallel", "ctx-size"};
  EXPECT_EQ(nearest_name("kvsise", names), "kvsize");
  EXPECT_EQ(nearest_name("prot", names), "port");
  EXPECT_EQ(nearest_name("paralel", names), "parallel");
  EXPECT_EQ(nearest_name("kv-cash", names), "kv-cache");
  EXPECT_EQ(nearest_name("para", names), "parallel");
  EXPECT_EQ(nearest_name("temperature", names), std::nullopt);
  EXPECT_EQ(nearest_name("", names), std::nullopt);
}

TEST(NearestName, DistanceCountsASwapOnce) {
  EXPECT_EQ(edit_distance("prot", "port"), 1U);
  EXPECT_EQ(edit_distance("abc", "abc"), 0U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
}

}  // namespace
}  // namespace caravan::cli
