#include "engine/cell_ledger.h"

#include <algorithm>

#include "base/check.h"

namespace caravan::engine {

CellLedger::CellLedger(std::uint32_t sequences, std::uint32_t cells_total) : total_(cells_total), held_(sequences) {}

void CellLedger::append(std::uint32_t sequence, std::uint32_t count) {
  CHECK(count <= free());
  auto& cells = held_.at(sequence);
  for (std::uint32_t i = 0; i < count; ++i) {
    if (released_.empty()) {
      released_.push_back(static_cast<std::uint32_t>(holders_.size()));
      holders_.push_back(0);
    }
    const std::uint32_t cell = released_.back();
    released_.pop_back();
    holders_[cell] = 1;
    cells.push_back(cell);
  }
  used_ += count;
  peak_ = std::max(peak_, used_);
}

void CellLedger::share(std::uint32_t source, std::uint32_t target, std::uint32_t length) {
  const auto& from = held_.at(source);
  auto& to = held_.at(target);
  CHECK(to.empty() && length <= from.size());
  to.assign(from.begin(), from.begin() + length);
  for (const std::uint32_t cell : to) ++holders_[cell];
}

void CellLedger::trim(std::uint32_t sequence, std::uint32_t length) {
  auto& cells = held_.at(sequence);
  if (length >= cells.size()) return;
  erase(sequence, length, static_cast<std::uint32_t>(cells.size()));
}

void CellLedger::erase(std::uint32_t sequence, std::uint32_t begin, std::uint32_t end) {
  auto& cells = held_.at(sequence);
  CHECK(begin <= end && end <= cells.size());
  for (std::uint32_t i = begin; i < end; ++i) release(cells[i]);
  cells.erase(cells.begin() + begin, cells.begin() + end);
}

std::uint32_t CellLedger::length(std::uint32_t sequence) const {
  return static_cast<std::uint32_t>(held_.at(sequence).size());
}

std::uint32_t CellLedger::unshared_from(std::uint32_t sequence) const {
  const auto& cells = held_.at(sequence);
  // Sharing is by prefix, so the holders of a sequence's cells never grow with the position.
  const auto first = std::ranges::partition_point(cells, [&](std::uint32_t cell) { return holders_[cell] > 1; });
  return static_cast<std::uint32_t>(first - cells.begin());
}

std::uint32_t CellLedger::distinct(std::span<const std::pair<std::uint32_t, std::uint32_t>> beginnings) const {
  std::vector<bool> counted(holders_.size());
  std::uint32_t count = 0;
  for (const auto& [sequence, length] : beginnings) {
    const auto& cells = held_.at(sequence);
    for (std::size_t i = 0; i < std::min<std::size_t>(length, cells.size()); ++i) {
      if (counted[cells[i]]) continue;
      counted[cells[i]] = true;
      ++count;
    }
  }
  return count;
}

void CellLedger::release(std::uint32_t cell) {
  CHECK(holders_[cell] > 0);
  if (--holders_[cell] > 0) return;
  released_.push_back(cell);
  --used_;
}

}  // namespace caravan::engine
