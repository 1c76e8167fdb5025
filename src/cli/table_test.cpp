#include "cli/table.h"

#include <gtest/gtest.h>

namespace caravan::cli {
namespace {

TEST(Table, AlignsColumnsAndLeavesNoTrailingSpace) {
  Table table({{"name", Align::left}, {"ms"}, {"note", Align::left}});
  table.row({"ttft", "12.5", "first"}).row({"itl", "3.1"});
  EXPECT_EQ(table.text(),
            "name    ms  note\n"
            "ttft  12.5  first\n"
            "itl    3.1\n");
}

TEST(Table, CountsColumnsOfTheTerminalNotBytes) {
  EXPECT_EQ(display_width("abc"), 3U);
  EXPECT_EQ(display_width("é"), 1U);
  EXPECT_EQ(display_width("e\u0301"), 1U);
  EXPECT_EQ(display_width("模型"), 4U);
  EXPECT_EQ(display_width("\xFF\xC3"), 2U) << "broken UTF-8 still counts";
  Table table({{"m", Align::left}, {"n"}});
  table.row({"模型", "1"}).row({"abcd", "2"});
  EXPECT_EQ(table.text(), "m     n\n模型  1\nabcd  2\n");
}

TEST(Table, MarkdownEscapesPipes) {
  Table table({{"flag", Align::left}, {"n"}});
  table.row({"a|b", "1"});
  EXPECT_EQ(table.markdown(), "| flag | n |\n|---|--:|\n| a\\|b | 1 |\n");
}

}  // namespace
}  // namespace caravan::cli
