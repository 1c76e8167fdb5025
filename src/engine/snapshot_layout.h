// How libllama lays out the state bytes of one sequence, and what a block's payload is made of them. Pure.
//
// libllama's format is not part of its interface, so nothing here is assumed: the layout is learned from the state of a
// short sequence that was decoded at start, and a state that does not parse to the last byte switches the tiers off for
// that model. What comes from a tier is compared with the learned layout word by word before libllama sees it, because
// a state that does not fit can abort the process.
//
// A state is a magic, a sequence id, then one or more parts:
//   cells      u32 streams, then for each: u32 cells, cells x {i32 position, u32 1, [ext], i32 sequence},
//              u32 V transposed, u32 layers, K of each layer {i32 type, u64 row bytes, rows},
//              V of each layer {i32 type, u64 row bytes, rows} or, transposed, {i32 type, u32 element bytes, u32 rows,
//              rows of one element a cell}; a window cache is a second such part, latent attention has no V
//   recurrent  u32 states, states x {i32 position, u32 0}, u32 0, u32 layers, then {i32 type, u64 row bytes, row} for
//              each layer that has an R, then for each that has an S
//
// Payload of a block (format 1): the state of a sequence that holds just these cells, as a pool with one stream writes
// it, with sequence ids 0 and no recurrent state. Payload of a checkpoint: the same with no cells and the recurrent
// state. So both go to libllama as they are where the pool is unified.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace caravan::engine {

inline constexpr std::uint32_t snapshot_version = 1;

class SnapshotLayout {
 public:
  using Bytes = std::span<const std::byte>;

  // From the state of a sequence whose `cells` tokens stand at 0, 1, ...; none if it is not as described above.
  static std::optional<SnapshotLayout> learn(Bytes state, std::uint32_t cells);

  [[nodiscard]] bool has_cells() const { return cell_parts_ > 0; }
  [[nodiscard]] bool has_recurrent() const { return cell_parts_ < parts_.size(); }
  [[nodiscard]] bool v_transposed() const { return v_transposed_; }
  [[nodiscard]] std::uint32_t streams() const { return streams_; }

  [[nodiscard]] std::size_t block_bytes(std::uint32_t cells) const { return size(cells, 1, false); }
  [[nodiscard]] std::size_t checkpoint_bytes() const { return size(0, 1, true); }
  // The size of what libllama writes for a sequence with so many cells (and its recurrent state, if it has one).
  [[nodiscard]] std::size_t state_bytes(std::uint32_t cells) const { return size(cells, streams_, has_recurrent()); }
  // Whether the state of a sequence with these cells alone is a block's payload but for its sequence ids.
  [[nodiscard]] bool state_is_payload() const { return streams_ == 1 && !has_recurrent(); }

  // Whether `payload` is a block of `cells` cells from `position` on, or a checkpoint after `position` tokens.
  [[nodiscard]] bool fits_block(Bytes payload, std::uint32_t position, std::uint32_t cells) const;
  [[nodiscard]] bool fits_checkpoint(Bytes payload, std::uint32_t tokens) const;

  // `state` as libllama wrote it, of a sequence with `cells` cells from `position` on; false if it is not that.
  [[nodiscard]] bool fits_state(Bytes state, std::uint32_t position, std::uint32_t cells) const;
  // Cells [first, first + count) of such a state as a block's payload; `payload` is block_bytes(count) long.
  void cut_block(Bytes state, std::uint32_t cells, std::uint32_t first, std::uint32_t count,
                 std::span<std::byte> payload) const;
  // Its recurrent state as a checkpoint's payload.
  void cut_checkpoint(Bytes state, std::uint32_t cells, std::span<std::byte> payload) const;
  // Sequence ids to 0, in place, where state_is_payload().
  void make_payload(std::span<std::byte> state, std::uint32_t cells) const;

  // What libllama is given for `blocks`, payloads of `cells` cells each that follow each other.
  [[nodiscard]] std::vector<std::byte> join(std::span<const Bytes> blocks, std::uint32_t cells) const;
  // A checkpoint's payload as this pool's streams want it.
  [[nodiscard]] std::vector<std::byte> with_streams(Bytes checkpoint) const;

 private:
  // Words that are always the same, then data.
  struct Section {
    std::vector<std::byte> words;
    std::uint32_t rows = 0;        // each one run of all cells
    std::uint64_t cell_bytes = 0;  // in a row; of a recurrent part: of the state
  };
  struct Part {
    bool recurrent = false;
    std::uint32_t ext_bytes = 0;  // between position and sequence id of a cell
    std::vector<Section> sections;
  };
  class Reader;
  class Writer;

  static std::optional<Part> learn_cells(Reader& reader, std::uint32_t cells, std::uint32_t& streams, bool& transposed,
                                         std::uint32_t ext_bytes, bool with_values);
  static std::optional<Part> learn_recurrent(Reader& reader);
  bool learn_parts(Reader reader, std::uint32_t cells);

  [[nodiscard]] std::size_t size(std::uint32_t cells, std::uint32_t streams, bool recurrent) const;
  [[nodiscard]] std::size_t part_bytes(const Part& part, std::uint32_t cells, std::uint32_t streams) const;
  [[nodiscard]] bool fits(Bytes bytes, std::uint32_t position, std::uint32_t cells, std::uint32_t streams,
                          std::optional<std::uint32_t> recurrent_tokens) const;
  [[nodiscard]] bool fits_cells(Reader& reader, const Part& part, std::uint32_t position, std::uint32_t cells,
                                std::uint32_t streams) const;
  [[nodiscard]] static bool fits_recurrent(Reader& reader, const Part& part, std::optional<std::uint32_t> tokens);
  static void write_empty(Writer& writer, const Part& part, std::uint32_t streams);

  std::uint32_t magic_ = 0;
  std::uint32_t streams_ = 1;
  bool v_transposed_ = false;
  std::size_t cell_parts_ = 0;  // they stand in front
  std::vector<Part> parts_;
};

}  // namespace caravan::engine
