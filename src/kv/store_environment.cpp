#include "kv/store_environment.h"

#include <cerrno>
#include <cstring>
#include <map>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"
#include "base/mutex.h"

namespace caravan::kv {
namespace {

constexpr unsigned readers_max = 1024;  // snapshots at one time, of all processes
constexpr unsigned environment_flags = MDB_NOSYNC | MDB_NOTLS;
constexpr std::array<const char*, tables> table_names = {"frames", "meta", "order", "state"};

StoreFault fault_of(int code) {
  switch (code) {
    case MDB_MAP_FULL:
    case MDB_TXN_FULL:
      return StoreFault::full;
    case MDB_MAP_RESIZED:  // another process gave the store more room
    case MDB_PANIC:        // a meta page could not be written, and this environment takes no more
      return StoreFault::stale;
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
    case MDB_INVALID:
    case MDB_VERSION_MISMATCH:
    case MDB_INCOMPATIBLE:
    case MDB_CURSOR_FULL:
    case MDB_PAGE_FULL:
    case MDB_BAD_VALSIZE:
    case MDB_BAD_TXN:
      return StoreFault::damaged;
    default:  // ENOSPC, EIO, EFBIG, ENOMEM, MDB_READERS_FULL, ...
      return StoreFault::disk;
  }
}

MDB_val value_of(Bytes bytes) {
  return {.mv_size = bytes.size(), .mv_data = const_cast<std::byte*>(bytes.data())};  // LMDB only reads it
}
Bytes bytes_of(const MDB_val& value) { return {static_cast<const std::byte*>(value.mv_data), value.mv_size}; }

// LMDB frees as many pages as the first of them says, without a look at the size of what lies there: a flipped bit
// would give it pages that are in use.
bool pages_fit(Bytes value) {
  constexpr std::size_t page_bytes = 4096;
  constexpr std::size_t header_bytes = 16;
  constexpr std::size_t count_offset = 12;
  if (value.size() < page_bytes) return true;  // in a page with others, or on one of its own
  std::uint32_t count = 0;
  std::memcpy(&count, value.data() - header_bytes + count_offset, sizeof(count));
  return count == (header_bytes - 1 + value.size()) / page_bytes + 1;
}

std::unexpected<StoreFault> failed(int code, const char* doing) {
  log::debug("store: {}: {}", doing, mdb_strerror(code));
  return std::unexpected(fault_of(code));
}

}  // namespace

const char* name_of(StoreFault fault) {
  switch (fault) {
    case StoreFault::full:
      return "full";
    case StoreFault::disk:
      return "disk";
    case StoreFault::stale:
      return "stale";
    case StoreFault::damaged:
      return "damaged";
  }
  return "unknown";
}

// ---- Environment ----

// The environments that are open in this process. Opening and closing happen under its mutex, so that a file that is
// just being closed is not opened beside it.
class Environment::Registry {
 public:
  static Registry& instance() {
    static Registry registry;
    return registry;
  }
  Mutex mutex;
  std::map<File, std::weak_ptr<Environment>> open GUARDED_BY(mutex);
};

StoreResult<std::shared_ptr<Environment>> Environment::open(const std::filesystem::path& folder,
                                                            std::uint64_t map_bytes) {
  Registry& registry = Registry::instance();
  std::shared_ptr<Environment> environment;
  while (!environment) {
    {
      const Lock lock(registry.mutex);
      const auto file = file_in(folder);
      const auto known = file ? registry.open.find(*file) : registry.open.end();
      if (known == registry.open.end()) {
        auto opened = open_file(folder, map_bytes);
        if (!opened) return opened;
        environment = std::move(*opened);
        registry.open[environment->file_] = environment;
      } else {
        environment = known->second.lock();
      }
    }
    if (!environment) usleep(1000);  // its last holder is just closing it
  }
  // Outside of the registry's lock: this waits for whoever writes, who may want to open another environment meanwhile.
  if (const auto opened = environment->open_tables(); !opened) return std::unexpected(opened.error());
  return environment;
}

StoreResult<void> Environment::open_tables() {
  const Lock lock(tables_mutex_);
  if (tables_open_) return {};
  MDB_txn* transaction = nullptr;
  if (const int code = mdb_txn_begin(env_, nullptr, 0, &transaction); code != 0) return failed(code, "begin");
  for (std::size_t table = 0; table < tables; ++table) {
    const int code = mdb_dbi_open(transaction, table_names[table], MDB_CREATE, &handles_[table]);
    if (code == 0) continue;
    mdb_txn_abort(transaction);
    return failed(code, table_names[table]);
  }
  if (const int code = mdb_txn_commit(transaction); code != 0) return failed(code, "commit");
  tables_open_ = true;
  return {};
}

StoreResult<std::shared_ptr<Environment>> Environment::open_file(const std::filesystem::path& folder,
                                                                 std::uint64_t map_bytes) {
  auto users = FileLock::take(users_file(folder), FileLock::Mode::shared);
  if (!users) return failed(errno, "lock");
  MDB_env* env = nullptr;
  if (const int code = mdb_env_create(&env); code != 0) return failed(code, "create");
  const auto close = [env](const auto& fault) {
    mdb_env_close(env);
    return std::unexpected(fault.error());
  };
  mdb_env_set_maxdbs(env, tables);
  mdb_env_set_maxreaders(env, readers_max);
  mdb_env_set_mapsize(env, map_bytes);
  if (const int code = mdb_env_open(env, folder.c_str(), environment_flags, 0600); code != 0) {
    return close(failed(code, "open"));
  }
  const auto file = file_in(folder);
  if (!file) return close(failed(ENOENT, "open"));
  return std::shared_ptr<Environment>(new Environment(env, *file, std::move(*users)));
}

std::optional<Environment::File> Environment::file_in(const std::filesystem::path& folder) {
  struct stat status{};
  if (stat((folder / "data.mdb").c_str(), &status) != 0) return std::nullopt;
  return File{.device = status.st_dev, .inode = status.st_ino, .process = getpid()};
}

Environment::~Environment() {
  Registry& registry = Registry::instance();
  const Lock lock(registry.mutex);
  mdb_env_close(env_);
  registry.open.erase(file_);
}

std::uint64_t Environment::map_bytes() const {
  MDB_envinfo info{};
  mdb_env_info(env_, &info);
  return info.me_mapsize;
}

std::uint64_t Environment::file_bytes() const {
  int descriptor = -1;
  struct stat status{};
  if (mdb_env_get_fd(env_, &descriptor) != 0 || fstat(descriptor, &status) != 0) return 0;
  return static_cast<std::uint64_t>(status.st_size);
}

bool Environment::lies_in(const std::filesystem::path& folder) const { return file_in(folder) == file_; }

StoreResult<void> Environment::sync() {
  if (const int code = mdb_env_sync(env_, 1); code != 0) return failed(code, "sync");
  return {};
}

std::size_t Environment::drop_dead_readers() {
  int dead = 0;
  mdb_reader_check(env_, &dead);
  return static_cast<std::size_t>(dead);
}

StoreResult<void> Environment::copy_to(const std::filesystem::path& folder) {
  if (const int code = mdb_env_copy2(env_, folder.c_str(), MDB_CP_COMPACT); code != 0) return failed(code, "copy");
  const int copy = ::open((folder / "data.mdb").c_str(), O_RDONLY | O_CLOEXEC);
  if (copy < 0) return failed(errno, "copy");
  const int code = fsync(copy) == 0 ? 0 : errno;
  ::close(copy);
  if (code != 0) return failed(code, "copy");
  return {};
}

// ---- Transaction ----

StoreResult<Transaction> Transaction::begin(std::shared_ptr<Environment> environment, Mode mode) {
  MDB_txn* transaction = nullptr;
  const unsigned flags = mode == Mode::read ? MDB_RDONLY : 0;
  int code = mdb_txn_begin(environment->env_, nullptr, flags, &transaction);
  if (code == MDB_READERS_FULL && environment->drop_dead_readers() > 0) {
    code = mdb_txn_begin(environment->env_, nullptr, flags, &transaction);
  }
  if (code != 0) return failed(code, "begin");
  return Transaction(std::move(environment), transaction);
}

Transaction::~Transaction() {
  if (transaction_ != nullptr) mdb_txn_abort(transaction_);
}

bool Transaction::succeeded(int code) {
  if (code != 0 && code != MDB_NOTFOUND) fail(failed(code, "transaction").error());
  return code == 0;
}

std::optional<Bytes> Transaction::find(Table table, Bytes key) {
  MDB_val name = value_of(key);
  MDB_val value{};
  if (fault_ || !succeeded(mdb_get(transaction_, handle(table), &name, &value))) return std::nullopt;
  return bytes_of(value);
}

std::optional<Transaction::Entry> Transaction::first(Table table, Bytes from) {
  MDB_cursor* cursor = nullptr;
  if (fault_ || !succeeded(mdb_cursor_open(transaction_, handle(table), &cursor))) return std::nullopt;
  MDB_val key = value_of(from);
  MDB_val value{};
  const bool found = succeeded(mdb_cursor_get(cursor, &key, &value, from.empty() ? MDB_FIRST : MDB_SET_RANGE));
  mdb_cursor_close(cursor);
  if (!found) return std::nullopt;
  return Entry{.key = bytes_of(key), .value = bytes_of(value)};
}

void Transaction::put(Table table, Bytes key, Bytes value) {
  MDB_val name = value_of(key);
  MDB_val content = value_of(value);
  if (!fault_) succeeded(mdb_put(transaction_, handle(table), &name, &content, 0));
}

std::span<std::byte> Transaction::reserve(Table table, Bytes key, std::size_t bytes) {
  MDB_val name = value_of(key);
  MDB_val content{.mv_size = bytes, .mv_data = nullptr};
  if (fault_ || !succeeded(mdb_put(transaction_, handle(table), &name, &content, MDB_RESERVE))) return {};
  return {static_cast<std::byte*>(content.mv_data), bytes};
}

bool Transaction::erase(Table table, Bytes key) {
  MDB_val name = value_of(key);
  if (const auto value = find(table, key); value && !pages_fit(*value)) fail(StoreFault::damaged);
  return !fault_ && succeeded(mdb_del(transaction_, handle(table), &name, nullptr));
}

StoreResult<void> Transaction::commit() {
  if (fault_) return std::unexpected(*fault_);
  const int code = mdb_txn_commit(std::exchange(transaction_, nullptr));
  if (code != 0) return failed(code, "commit");
  return {};
}

}  // namespace caravan::kv
