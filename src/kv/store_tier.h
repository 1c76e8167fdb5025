// The store: frames in a memory-mapped file that survives the process and is shared by all processes of a host.
//
//   reading   a frame is read where it lies in the map, under a snapshot that its lease holds; verified each time
//   writing   whole or not at all: a transaction a batch; a process killed at any moment loses nothing committed (I7)
//   room      the file is never larger than bytes_max; blocks go least recently used first, those at the end of chains
//             before those that lead to them; pinned ones stay
//   trouble   a full disk: not written to for a while, read all the same (degraded). A damaged frame: removed, a miss.
//             A damaged or foreign file: set aside, and a new one begun (kv/store_folder.h)
//
// A lease keeps the pages of its whole snapshot from being used again. The file does not grow for that: while leases
// are held for long, puts are refused once the free pages are used up.
//
// Thread-safe. Everything may wait for the disk and for the writers of other processes, but stats(). The directory is
// on a local disk or in /dev/shm: locks and maps do not hold over a network.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>

#include "base/clock.h"
#include "base/result.h"
#include "kv/tier.h"

namespace caravan::kv {

struct StoreTierOptions {
  std::filesystem::path directory;
  std::uint64_t bytes_max = std::uint64_t{10} << 30U;  // of the file; for all who have the store open: the last one's
  std::function<TimePoint()> now = Clock::now;
};

class StoreTier final : public Tier {
 public:
  // Errors: invalid_argument for a size below 1 MiB; io where the directory cannot be used.
  static Result<std::unique_ptr<StoreTier>> open(StoreTierOptions options);
  ~StoreTier() override;  // writes down what is noted, and all to the disk; leases stay good
  StoreTier(const StoreTier&) = delete;
  StoreTier& operator=(const StoreTier&) = delete;

  struct Item {
    BlockId id;
    Bytes frame;
  };
  // As put, many in a transaction; how many are here then.
  std::size_t put_many(std::span<const Item> items);
  // A request used these blocks, in whatever tier. Noted, and written down later.
  void touch(std::span<const BlockId> ids);

  // A pinned block is never evicted. False: not here, or half of the store is pinned already.
  bool pin(const BlockId& id);
  bool unpin(const BlockId& id);

  // Gives up blocks, least worth first, until so many bytes are gone or nothing more can go; what went.
  std::uint64_t evict(std::uint64_t bytes);
  // Everything, pinned or not; the room on the disk is given back.
  Status clear();
  // Gives back the room on the disk that blocks do not need. Needs room for a copy of them meanwhile.
  Status compact();
  // A store of its own in `directory`, which must be empty, with all that is here; each frame verified.
  Status backup(const std::filesystem::path& directory);

  struct Block {
    BlockId id;
    std::uint64_t bytes = 0;  // of the frame
    std::uint32_t uses = 0;
    bool pinned = false;
  };
  // In order of ids, in several snapshots: what comes or goes meanwhile is visited or not. Until `visit` says false.
  void for_each(const std::function<bool(const Block&)>& visit);
  struct Verified {
    std::uint64_t blocks = 0;   // that are good
    std::uint64_t damaged = 0;  // and were removed
    bool tables_agree = true;   // those who say what is here, among each other
  };
  // Reads every frame.
  Verified verify();

  // Writes down the uses that are noted; done each second by itself.
  void flush();

  // ---- Tier ----
  [[nodiscard]] TierKind kind() const override { return TierKind::store; }
  std::size_t match(std::span<const BlockId> ids) override;
  [[nodiscard]] bool contains(const BlockId& id) override;
  Lease get(const BlockId& namespace_id, const BlockId& id) override;
  bool put(const BlockId& id, Bytes frame) override;
  bool erase(const BlockId& id) override;
  [[nodiscard]] TierStats stats() const override;

 private:
  class State;
  explicit StoreTier(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace caravan::kv
