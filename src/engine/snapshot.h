// Restore and capture: a sequence's cells and states into the payloads of blocks and checkpoints, and back.
//
// Only here (and in snapshot_layout.h) libllama's state bytes are known. At start the layout is learned and a round
// trip proven on this very context; where that fails, obstacle() says why and nothing of the model goes to the tiers.
//
// In a unified pool a block passes through a scratch sequence: its cells are named by it (seq_cp moves no bytes), and
// libllama copies them to or from the payload. Between streams cells have no second name: there the whole sequence is
// copied and blocks are cut from it. Owned by the engine thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/kv_pool.h"
#include "engine/snapshot_layout.h"

namespace caravan::engine {

enum class RestoreAnswer {
  restored,
  no_match,  // the payload is not of this layout or position; nothing was touched
  failed,    // libllama refused it; the sequence is empty now
};

class Snapshot {
 public:
  using Bytes = std::span<const std::byte>;

  // Decodes a few tokens on the empty pool, and leaves it empty.
  Snapshot(KvPool& pool, const Model& model, std::uint32_t block_tokens);

  // Why nothing can be captured or restored; empty when it can.
  [[nodiscard]] const std::string& obstacle() const { return obstacle_; }
  [[nodiscard]] bool has_blocks() const { return layout_ && layout_->has_cells(); }
  [[nodiscard]] bool has_checkpoints() const { return layout_ && layout_->has_recurrent(); }
  [[nodiscard]] bool v_transposed() const { return layout_ && layout_->v_transposed(); }
  [[nodiscard]] std::size_t block_bytes() const { return layout_->block_bytes(block_tokens_); }
  [[nodiscard]] std::size_t checkpoint_bytes() const { return layout_->checkpoint_bytes(); }
  // Tokens between checkpoints, a multiple of the block: so that they cost at most 64 KiB a token.
  [[nodiscard]] std::uint32_t checkpoint_step() const;
  // Whether one block costs a copy of the whole sequence (streams), so that several at once are cheaper.
  [[nodiscard]] bool captures_whole() const { return !pool_.scratch(); }

  // Blocks [first, first + payloads.size()) of the sequence, each payload block_bytes() long. False: libllama holds
  // something else than the ledger says; the payloads are void.
  [[nodiscard]] bool capture_blocks(std::uint32_t sequence, std::uint32_t first,
                                    std::span<const std::span<std::byte>> payloads);
  // The state at the very end of the sequence, where it stands now.
  [[nodiscard]] bool capture_checkpoint(std::uint32_t sequence, std::span<std::byte> payload);

  // Puts blocks behind what `sequence` holds, which ends at block `first`; between streams the sequence must be empty.
  // The caller has made sure of the cells. A hybrid model's sequence is whole only after its checkpoint.
  RestoreAnswer restore_blocks(std::uint32_t sequence, std::uint32_t first, std::span<const Bytes> payloads);
  // The state after `tokens` tokens; of a hybrid model, onto the blocks before it.
  RestoreAnswer restore_checkpoint(std::uint32_t sequence, std::uint32_t tokens, Bytes payload);

 private:
  std::string probe(const Model& model);
  [[nodiscard]] std::string prove_round_trip(std::uint32_t cells);
  Bytes state_of(std::uint32_t sequence);  // in buffer_
  bool set_state(std::uint32_t sequence, Bytes state);

  KvPool& pool_;
  std::uint32_t block_tokens_;
  std::optional<SnapshotLayout> layout_;
  std::string obstacle_;
  std::vector<std::byte> buffer_;
};

}  // namespace caravan::engine
