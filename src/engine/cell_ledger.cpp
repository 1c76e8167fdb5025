#include "engine/cell_ledger.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace caravan::engine {

CellLedger::CellLedger(std::uint32_t sequences, std::uint32_t cells_total)
    : total_(cells_total), held_(sequences), holders_(cells_total, 0), free_(cells_total) {
  std::iota(free_.rbegin(), free_.rend(), 0U);  // low cells first
}

void CellLedger::append(std::uint32_t sequence, std::uint32_t count) {
  CHECK(count <= free_.size());
  auto& cells = held_.at(sequence);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t cell = free_.back();
    free_.pop_back();
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

void CellLedger::release(std::uint32_t cell) {
  CHECK(holders_[cell] > 0);
  if (--holders_[cell] > 0) return;
  free_.push_back(cell);
  --used_;
}

}  // namespace caravan::engine
