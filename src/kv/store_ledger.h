// What stands in the store's tables, and the changes that keep the four in agreement. docs/store_format.md has the
// bytes.
//
//   frames   id -> the sealed raw frame
//   meta     id -> BlockRecord
//   order    (stamp, depth from deep to shallow, id) -> nothing: who goes first; pinned blocks are not in it
//   state    "state" -> StoreState
//
// Stamps are logical: a counter that advances with each batch of uses and with each 1/64 of the store written, so no
// clock decides. A block used passes its stamp to the blocks before it, and among equal stamps the deeper go first:
// so no block goes before those that are found only through it.
//
// Every function here works in the caller's transaction and holds in part only until it commits. Not thread-safe.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kv/block.h"
#include "kv/block_format.h"
#include "kv/store_environment.h"

namespace caravan::kv {

inline constexpr std::uint32_t store_version = 1;

struct StoreState {
  std::uint32_t version = store_version;
  std::uint8_t clean = 0;  // closed with everything on the disk
  std::uint8_t moved = 0;  // another generation took this one's place
  std::uint16_t reserved = 0;
  std::uint64_t blocks = 0;
  std::uint64_t bytes = 0;  // what the blocks cost, metadata and rounding too
  std::uint64_t frame_bytes = 0;
  std::uint64_t pinned_bytes = 0;
  std::uint64_t stamp = 1;
  std::uint64_t stamp_bytes = 0;      // written since the stamp advanced
  std::array<char, 40> boot_id = {};  // of the machine's run in which it was last written
};
static_assert(sizeof(StoreState) == 96);

struct BlockRecord {
  std::uint64_t frame_bytes = 0;
  std::uint64_t stamp = 0;  // of its last use, or of that of a block behind it
  std::uint32_t depth = 0;  // blocks before it in its chain, as far as they were here when it came
  std::uint32_t uses = 0;
  std::uint32_t pinned = 0;
  std::uint32_t reserved = 0;
  BlockId namespace_id;
  BlockId parent;
};
static_assert(sizeof(BlockRecord) == 96);

inline Bytes key_of(const BlockId& id) { return std::as_bytes(std::span(id.bytes)); }

// What a block takes: its pages in the file and its share of the trees.
std::uint64_t cost_of(std::uint64_t frame_bytes);

class Ledger {
 public:
  // Reads the state; a store that was moved is a fault of the transaction (stale), one without state too (damaged).
  explicit Ledger(Transaction& transaction);
  // Of an environment that has no tables' content yet, or one of a newer version: nothing is judged.
  static std::optional<StoreState> read_state(Transaction& transaction);
  static void write_state(Transaction& transaction, const StoreState& state);

  struct Block {
    BlockId id;
    BlockRecord record;
  };
  // Of an entry of the table meta; nothing for one that is none.
  static std::optional<Block> read_entry(const Transaction::Entry& entry);
  // Whether the tables name the same blocks, and the state their sums. Reads all but the frames.
  static bool agrees(Transaction& transaction);

  [[nodiscard]] StoreState& state() { return state_; }
  std::optional<BlockRecord> find(const BlockId& id);

  // A place for the frame of a block that is not here; the blocks before it count as used. Empty after a fault.
  std::span<std::byte> insert(const BlockId& id, const FrameHeader& header, std::uint64_t frame_bytes);
  bool remove(const BlockId& id);
  // Counts a use of each, and of the blocks before it.
  void use(std::span<const BlockId> ids);
  // Lets go of blocks until what is kept costs at most `bytes`, nothing more may go, or `most` are gone; how many went.
  std::uint64_t evict_to(std::uint64_t bytes, std::uint64_t most);
  // False: not here, or more than `pinned_bytes_max` would be pinned.
  bool pin(const BlockId& id, std::uint64_t pinned_bytes_max);
  bool unpin(const BlockId& id);
  // The stamp advances each time that `bytes` were written.
  void advance_every(std::uint64_t bytes) { advance_bytes_ = bytes; }

  // Writes the state; the last thing before the commit.
  void save() { write_state(transaction_, state_); }

 private:
  void advance();
  void refresh(BlockId id);
  void write(const BlockId& id, const BlockRecord& record);

  Transaction& transaction_;
  StoreState state_;
  std::uint64_t advance_bytes_ = ~std::uint64_t{0};
};

}  // namespace caravan::kv
