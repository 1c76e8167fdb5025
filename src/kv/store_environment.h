// LMDB, as far as the store needs it: an environment with the store's four tables, transactions over it, and LMDB's
// return codes sorted by what can be done about them.
//
// Opened without MDB_WRITEMAP, so a stray pointer cannot write into the file and a full disk is an error of a write,
// not a SIGBUS; with MDB_NOSYNC, so a commit waits for no disk (what is committed survives the process, and the
// machine from the next sync() on); with MDB_NOTLS, so a read transaction may end on another thread than it began on.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include <lmdb.h>
#include <sys/types.h>

#include "base/file_lock.h"
#include "base/mutex.h"
#include "kv/block_format.h"

namespace caravan::kv {

enum class StoreFault {
  full,     // no room in the map; evict, or wait for old readers to go
  disk,     // the disk, or LMDB's table of readers, has no room or failed: goes by, try again later
  stale,    // this environment is not what the store is any more, or cannot go on: open it anew
  damaged,  // the file contradicts itself: set it aside
};
const char* name_of(StoreFault fault);

template <class T>
using StoreResult = std::expected<T, StoreFault>;

enum class Table : std::uint8_t { frames, meta, order, state };
inline constexpr std::size_t tables = 4;

// Closed with the last that holds it: the tier, and every lease. Thread-safe.
class Environment {
 public:
  // A process must not open an LMDB file twice (closing one would drop the other's locks), so all who ask for the same
  // file get the same object. `map_bytes` bounds the file, unless it is larger already or open in this process.
  static StoreResult<std::shared_ptr<Environment>> open(const std::filesystem::path& folder, std::uint64_t map_bytes);
  ~Environment();
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

  [[nodiscard]] std::uint64_t map_bytes() const;
  [[nodiscard]] std::uint64_t file_bytes() const;
  // Whether this is the environment that lies in `folder` now; it may have been renamed, or removed.
  [[nodiscard]] bool lies_in(const std::filesystem::path& folder) const;
  // Whether no other process has it open, and no other environment of this one.
  [[nodiscard]] bool is_alone() const { return users_.is_alone(); }
  // The file that every user holds a shared lock on.
  static std::filesystem::path users_file(const std::filesystem::path& folder) { return folder / "users"; }
  StoreResult<void> sync();
  // Gives back the snapshots of processes that died while they read. How many there were.
  std::size_t drop_dead_readers();
  // A copy of what is committed, without free pages, on the disk when this returns. `folder` must be empty.
  StoreResult<void> copy_to(const std::filesystem::path& folder);

 private:
  friend class Transaction;
  struct File {
    dev_t device = 0;
    ino_t inode = 0;
    pid_t process = 0;  // after a fork the child must open its own
    friend auto operator<=>(const File&, const File&) = default;
  };
  class Registry;
  Environment(MDB_env* env, File file, FileLock users) : env_(env), file_(file), users_(std::move(users)) {}
  static StoreResult<std::shared_ptr<Environment>> open_file(const std::filesystem::path& folder,
                                                             std::uint64_t map_bytes);
  StoreResult<void> open_tables();
  static std::optional<File> file_in(const std::filesystem::path& folder);

  MDB_env* env_;
  Mutex tables_mutex_;
  bool tables_open_ GUARDED_BY(tables_mutex_) = false;
  std::array<MDB_dbi, tables> handles_{};  // written before open() returns, and not again
  File file_;
  FileLock users_;
};

// A snapshot to read, or the one writer. The first fault sticks: from then on nothing is found or changed, and commit()
// says what it was; so a sequence of steps needs one check, at its end. Not thread-safe; a writer stays on its thread.
class Transaction {
 public:
  enum class Mode : std::uint8_t { read, write };
  struct Entry {
    Bytes key;
    Bytes value;
  };

  // A writer waits for the writers of all processes.
  static StoreResult<Transaction> begin(std::shared_ptr<Environment> environment, Mode mode);
  Transaction(Transaction&& other) noexcept
      : environment_(std::move(other.environment_)),
        transaction_(std::exchange(other.transaction_, nullptr)),
        fault_(other.fault_) {}
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();

  // What is found lies in the map: as long as the transaction if it reads, until the next change if it writes.
  std::optional<Bytes> find(Table table, Bytes key);
  // The first entry whose key is not less than `from`.
  std::optional<Entry> first(Table table, Bytes from = {});

  void put(Table table, Bytes key, Bytes value);
  // A place for a value, to be filled before the next change; empty after a fault.
  std::span<std::byte> reserve(Table table, Bytes key, std::size_t bytes);
  bool erase(Table table, Bytes key);

  // What the caller found to be wrong.
  void fail(StoreFault fault) {
    if (!fault_) fault_ = fault;
  }
  [[nodiscard]] std::optional<StoreFault> fault() const { return fault_; }
  StoreResult<void> commit();

 private:
  Transaction(std::shared_ptr<Environment> environment, MDB_txn* transaction)
      : environment_(std::move(environment)), transaction_(transaction) {}
  [[nodiscard]] MDB_dbi handle(Table table) const { return environment_->handles_[static_cast<std::size_t>(table)]; }
  bool succeeded(int code);

  std::shared_ptr<Environment> environment_;
  MDB_txn* transaction_;
  std::optional<StoreFault> fault_;
};

}  // namespace caravan::kv
