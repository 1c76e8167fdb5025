// Who holds which KV cells of the device pool: the books kept beside libllama, which does not tell.
//
// A cell is one token's KV. In a unified pool a prefix shared by seq_cp is held by several sequences at once and counts
// once; in streams every sequence has cells of its own. Pure accounting, no libllama. Owned by the engine thread.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace caravan::engine {

class CellLedger {
 public:
  CellLedger(std::uint32_t sequences, std::uint32_t cells_total);

  // `sequence` got `count` new cells behind what it has. The caller has made sure that they are free.
  void append(std::uint32_t sequence, std::uint32_t count);
  // The empty `target` now holds the first `length` cells of `source` too.
  void share(std::uint32_t source, std::uint32_t target, std::uint32_t length);
  // `sequence` keeps its first `length` cells and lets go of the rest.
  void trim(std::uint32_t sequence, std::uint32_t length);
  // `sequence` lets go of its cells [begin, end); those behind move up. For context shifts.
  void erase(std::uint32_t sequence, std::uint32_t begin, std::uint32_t end);

  [[nodiscard]] std::uint32_t length(std::uint32_t sequence) const;
  // The first position from which on no other sequence holds the cells of `sequence`; its length if all are shared.
  [[nodiscard]] std::uint32_t unshared_from(std::uint32_t sequence) const;
  // Cells held by any of these beginnings (sequence, length), each counted once.
  [[nodiscard]] std::uint32_t distinct(std::span<const std::pair<std::uint32_t, std::uint32_t>> beginnings) const;
  [[nodiscard]] std::uint32_t total() const { return total_; }
  [[nodiscard]] std::uint32_t used() const { return used_; }  // each shared cell once
  [[nodiscard]] std::uint32_t free() const { return total_ - used_; }
  [[nodiscard]] std::uint32_t peak() const { return peak_; }

 private:
  void release(std::uint32_t cell);

  std::uint32_t total_;
  std::uint32_t used_ = 0;
  std::uint32_t peak_ = 0;
  std::vector<std::vector<std::uint32_t>> held_;  // by sequence: its cells in order of position
  std::vector<std::uint16_t> holders_;            // by cell; grows with the highest number ever used
  std::vector<std::uint32_t> released_;           // cells that were used and are not
};

}  // namespace caravan::engine
