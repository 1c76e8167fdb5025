// Columns that line up, for figures on a terminal or in a Markdown page. A plain value; not thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace caravan::cli {

enum class Align { left, right };

struct Column {
  std::string title;
  Align align = Align::right;
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // Cells that are missing at the end are empty; more cells than columns is a programmer's error.
  Table& row(std::vector<std::string> cells);
  [[nodiscard]] bool empty() const { return rows_.empty(); }

  // Title line and rows, two spaces between columns, each line ended by a newline and free of trailing spaces.
  [[nodiscard]] std::string text() const;
  // A Markdown table; a | in a cell is escaped.
  [[nodiscard]] std::string markdown() const;

 private:
  [[nodiscard]] std::vector<std::size_t> widths() const;

  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Columns that UTF-8 text takes on a terminal: East Asian wide characters take two, combining marks none.
std::size_t display_width(std::string_view text);

}  // namespace caravan::cli
