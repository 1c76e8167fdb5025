// Which environment is the store. All that happens to files as a whole is here: opening, judging, replacing, setting
// aside; one process at a time, by a lock on DIR/lock.
//
//   DIR/lock                held while any of this changes
//   DIR/v1/current          the generation that is in use, and the size that its last opener gave the store
//   DIR/v1/N/data.mdb       generation N; lock.mdb is LMDB's, `users` is locked by each process that has it open
//   DIR/v1.damaged-N        what could not be used: of another machine's run, truncated, contradictory; the last two
//   DIR/v1.foreign-N        what a newer version wrote
//
// A generation is replaced by a copy, never changed in size: a shorter file cannot be had from LMDB in another way, and
// whoever reads the old one goes on reading it. Thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string_view>

#include "base/file_lock.h"
#include "base/result.h"
#include "kv/store_environment.h"

namespace caravan::kv {

inline constexpr std::uint64_t store_bytes_min = std::uint64_t{1} << 20U;

// Of the size of the file, what blocks may take: LMDB needs free pages to write to before old ones come free, and a
// frame needs them side by side.
constexpr std::uint64_t store_budget(std::uint64_t bytes_max) { return bytes_max - bytes_max / 8; }

struct OpenStore {
  std::shared_ptr<Environment> environment;
  std::filesystem::path folder;
  std::uint64_t bytes_max = 0;  // of all who have it open: the last opener's
};

class StoreFolder {
 public:
  explicit StoreFolder(std::filesystem::path directory);

  // What is there, made to fit `bytes_max` (none: as its last opener said); what cannot be used is set aside, and an
  // empty store begun. Errors: io.
  Result<OpenStore> open(std::optional<std::uint64_t> bytes_max);
  // The next generation, with what the old one holds or nothing, unless another process replaced it meanwhile.
  enum class Content : std::uint8_t { kept, dropped };
  Result<OpenStore> replace(const OpenStore& old, Content content);
  // For an environment that proved to be damaged in use.
  Result<OpenStore> set_aside(const OpenStore& damaged);
  // A store of its own in `directory`, which must be empty or not there. Errors: invalid_argument, io.
  Status copy(const OpenStore& from, const std::filesystem::path& directory) const;
  // Whether `open` would give the same.
  [[nodiscard]] bool is_current(const OpenStore& store) const;
  // To be called by the last user of this process: everything to the disk, and marked so if nobody else has it open.
  void close(const OpenStore& store);
  // Removes generations that were replaced and that nobody reads any more.
  void remove_unused();

 private:
  struct Current {
    std::uint64_t generation = 0;
    std::uint64_t bytes_max = 0;
  };
  enum class Unusable : std::uint8_t { damaged, foreign, unreachable };
  using Opened = std::expected<OpenStore, Unusable>;

  [[nodiscard]] std::filesystem::path home() const { return directory_ / "v1"; }
  [[nodiscard]] std::filesystem::path folder_of(const Current& current) const;
  Result<FileLock> lock() const;
  [[nodiscard]] std::optional<Current> current() const;
  static Status write_current(const std::filesystem::path& home, const Current& current);
  // These under the lock.
  Result<OpenStore> open_locked(std::optional<std::uint64_t> bytes_max);
  Opened open_generation(const Current& current) const;
  Result<OpenStore> fit(OpenStore store);
  Result<OpenStore> replace_locked(const OpenStore& old, Content content);
  Status begin(std::uint64_t bytes_max);
  Status rename_away(Unusable why);
  void remove_unused_locked();

  std::filesystem::path directory_;
};

}  // namespace caravan::kv
