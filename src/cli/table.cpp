#include "cli/table.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/check.h"

namespace caravan::cli {
namespace {

// The code point at `text[at]` and the bytes it takes; a broken byte counts as one character.
std::pair<std::uint32_t, std::size_t> decode(std::string_view text, std::size_t at) {
  const auto first = static_cast<unsigned char>(text[at]);
  const std::size_t length = first < 0x80 ? 1 : first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (length == 1 || at + length > text.size()) return {first, 1};
  std::uint32_t point = first & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) point = point << 6 | (static_cast<unsigned char>(text[at + i]) & 0x3FU);
  return {point, length};
}

bool is_wide(std::uint32_t point) {
  return (point >= 0x1100 && point <= 0x115F) || (point >= 0x2E80 && point <= 0xA4CF) ||
         (point >= 0xAC00 && point <= 0xD7A3) || (point >= 0xF900 && point <= 0xFAFF) ||
         (point >= 0xFE30 && point <= 0xFE6F) || (point >= 0xFF00 && point <= 0xFF60) ||
         (point >= 0x1F300 && point <= 0x1FAFF) || (point >= 0x20000 && point <= 0x3FFFD);
}

bool is_combining(std::uint32_t point) {
  return (point >= 0x0300 && point <= 0x036F) || point == 0x200B || point == 0x200D ||
         (point >= 0xFE00 && point <= 0xFE0F);
}

std::string padded(const std::string& cell, std::size_t width, Align align) {
  const std::string space(width - std::min(width, display_width(cell)), ' ');
  return align == Align::left ? cell + space : space + cell;
}

std::string escaped(const std::string& cell) {
  std::string out;
  for (const char c : cell) {
    if (c == '|') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  for (std::size_t at = 0; at < text.size();) {
    const auto [point, length] = decode(text, at);
    width += is_combining(point) ? 0 : is_wide(point) ? 2 : 1;
    at += length;
  }
  return width;
}

Table& Table::row(std::vector<std::string> cells) {
  CHECK(cells.size() <= columns_.size());
  cells.resize(columns_.size());
  rows_.push_back(std::move(cells));
  return *this;
}

std::vector<std::size_t> Table::widths() const {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t width = display_width(columns_[i].title);
    for (const auto& row : rows_) width = std::max(width, display_width(row[i]));
    widths.push_back(width);
  }
  return widths;
}

std::string Table::text() const {
  const auto width = widths();
  std::string out;
  const auto line = [&](const auto& cell_of) {
    std::string made;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
      if (i > 0) made += "  ";
      made += padded(cell_of(i), width[i], columns_[i].align);
    }
    made.erase(made.find_last_not_of(' ') + 1);
    out += made + '\n';
  };
  line([&](std::size_t i) { return columns_[i].title; });
  for (const auto& row : rows_) line([&](std::size_t i) { return row[i]; });
  return out;
}

std::string Table::markdown() const {
  std::string out;
  for (const auto& column : columns_) out += "| " + escaped(column.title) + ' ';
  out += "|\n";
  for (const auto& column : columns_) out += column.align == Align::left ? "|---" : "|--:";
  out += "|\n";
  for (const auto& row : rows_) {
    for (const auto& cell : row) out += "| " + escaped(cell) + ' ';
    out += "|\n";
  }
  return out;
}

}  // namespace caravan::cli
