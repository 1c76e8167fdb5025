#include "kv/store_folder.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "base/log.h"
#include "kv/store_check.h"
#include "kv/store_ledger.h"

namespace caravan::kv {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t set_aside_max = 2;
constexpr std::uint64_t evicted_a_transaction = 1024;

std::array<char, 40> boot_id() {
  std::array<char, 40> id{};
  std::ifstream("/proc/sys/kernel/random/boot_id").read(id.data(), 36);
  return id;
}

// A rename is on the disk with its folder.
void sync_folder(const fs::path& folder) {
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  fsync(descriptor);
  ::close(descriptor);
}

std::optional<std::uint64_t> number_of(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (fs::directory_iterator at(folder, error); !error && at != fs::directory_iterator(); at.increment(error)) {
    entries.push_back(at->path());
  }
  return entries;
}

// Claims a state for this run of the machine, or says why it must not be used.
enum class Judgement : std::uint8_t { good, damaged, foreign };
Judgement claim(Transaction& transaction) {
  auto state = Ledger::read_state(transaction);
  if (!state) {
    const bool empty = !transaction.first(Table::meta) && !transaction.first(Table::frames);
    if (!empty) return Judgement::damaged;
    state = StoreState{.boot_id = boot_id()};
  }
  if (state->version != store_version) return Judgement::foreign;
  if (state->clean == 0 && state->boot_id != boot_id()) return Judgement::damaged;
  state->clean = 0;
  state->boot_id = boot_id();
  Ledger::write_state(transaction, *state);
  return Judgement::good;
}

}  // namespace

StoreFolder::StoreFolder(fs::path directory) : directory_(std::move(directory)) {}

fs::path StoreFolder::folder_of(const Current& current) const { return home() / std::to_string(current.generation); }

Result<FileLock> StoreFolder::lock() const {
  auto lock = FileLock::take(directory_ / "lock", FileLock::Mode::exclusive);
  if (!lock) return fail(ErrorCode::io, "{} cannot be written to; give a folder that can", directory_.string());
  return std::move(*lock);
}

std::optional<StoreFolder::Current> StoreFolder::current() const {
  std::ifstream file(home() / "current");
  std::string generation_word;
  std::string size_word;
  Current current;
  file >> generation_word >> current.generation >> size_word >> current.bytes_max;
  const bool known = file && generation_word == "generation" && size_word == "bytes_max" && current.generation > 0 &&
                     current.bytes_max >= store_bytes_min;
  if (!known) return std::nullopt;
  return current;
}

Status StoreFolder::write_current(const fs::path& home, const Current& current) {
  const fs::path draft = home / "current.new";
  std::ofstream file(draft, std::ios::trunc);
  file << "generation " << current.generation << "\nbytes_max " << current.bytes_max << '\n';
  file.close();
  std::error_code error;
  if (file) fs::rename(draft, home / "current", error);
  if (!file || error) return fail(ErrorCode::io, "{} cannot be written", (home / "current").string());
  sync_folder(home);
  return {};
}

// ---- opening ----

Result<OpenStore> StoreFolder::open(std::optional<std::uint64_t> bytes_max) {
  std::error_code error;
  fs::create_directories(directory_, error);
  const auto locked = lock();
  if (!locked) return std::unexpected(locked.error());
  return open_locked(bytes_max);
}

Result<OpenStore> StoreFolder::open_locked(std::optional<std::uint64_t> bytes_max) {
  auto named = current();
  if (!named && fs::exists(home())) {
    if (auto renamed = rename_away(Unusable::damaged); !renamed) return std::unexpected(renamed.error());
  }
  const std::uint64_t size = bytes_max ? *bytes_max : named ? named->bytes_max : store_bytes_min;
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (!named) {
      if (auto begun = begin(size); !begun) return std::unexpected(begun.error());
      named = Current{.generation = 1, .bytes_max = size};
    }
    if (named->bytes_max != size) {
      named->bytes_max = size;
      if (auto written = write_current(home(), *named); !written) return std::unexpected(written.error());
    }
    auto opened = open_generation(*named);
    if (opened) {
      remove_unused_locked();
      return fit(std::move(*opened));
    }
    if (opened.error() == Unusable::unreachable) break;
    if (auto renamed = rename_away(opened.error()); !renamed) return std::unexpected(renamed.error());
    named.reset();
  }
  return fail(ErrorCode::io, "the store in {} cannot be opened; see that the disk has room and can be written to",
              directory_.string());
}

StoreFolder::Opened StoreFolder::open_generation(const Current& current) const {
  const fs::path folder = folder_of(current);
  std::error_code error;
  fs::create_directories(folder, error);
  const fs::path data = folder / "data.mdb";
  std::uint64_t file_bytes = 0;
  bool alone = false;
  if (fs::exists(data, error)) {
    if (!fs::is_regular_file(data, error)) return std::unexpected(Unusable::damaged);
    // While others use it, it is as good as they are, and changes under our eyes.
    const auto users = FileLock::try_take(Environment::users_file(folder), FileLock::Mode::exclusive);
    alone = users.has_value();
    if (alone) {
      const auto checked = check_file(data);
      if (!checked) {
        log::warn("store: {}: {}", data.string(), checked.error());
        return std::unexpected(Unusable::damaged);
      }
    }
    file_bytes = fs::file_size(data, error);
  }
  // A file that is too large needs some room to become smaller in.
  const std::uint64_t map_bytes =
      file_bytes <= current.bytes_max ? current.bytes_max : file_bytes + file_bytes / 8 + store_bytes_min;
  auto environment = Environment::open(folder, map_bytes);
  if (!environment) {
    return std::unexpected(environment.error() == StoreFault::damaged ? Unusable::damaged : Unusable::unreachable);
  }
  auto transaction = Transaction::begin(*environment, Transaction::Mode::write);
  if (!transaction) {
    return std::unexpected(transaction.error() == StoreFault::damaged ? Unusable::damaged : Unusable::unreachable);
  }
  switch (claim(*transaction)) {
    case Judgement::good:
      break;
    case Judgement::damaged:
      return std::unexpected(Unusable::damaged);
    case Judgement::foreign:
      return std::unexpected(Unusable::foreign);
  }
  const auto committed = transaction->commit();
  // That it is in use must be on the disk before any page is used again that the last clean state refers to.
  const bool claimed = committed && (!alone || (*environment)->sync());
  if (!claimed) {
    const bool damaged = !committed && committed.error() == StoreFault::damaged;
    return std::unexpected(damaged ? Unusable::damaged : Unusable::unreachable);
  }
  return OpenStore{.environment = std::move(*environment), .folder = folder, .bytes_max = current.bytes_max};
}

Status StoreFolder::begin(std::uint64_t bytes_max) {
  const fs::path draft = directory_ / "v1.new";
  std::error_code error;
  fs::remove_all(draft, error);
  fs::create_directories(draft / "1", error);
  if (error) return fail(ErrorCode::io, "{} cannot be made: {}", draft.string(), error.message());
  if (auto written = write_current(draft, {.generation = 1, .bytes_max = bytes_max}); !written) return written;
  fs::rename(draft, home(), error);
  if (error) return fail(ErrorCode::io, "{} cannot be made: {}", home().string(), error.message());
  sync_folder(directory_);
  return {};
}

// Evicts what is too much. A file that is too large all the same, because it was larger once, is replaced by a copy.
Result<OpenStore> StoreFolder::fit(OpenStore store) {
  const std::uint64_t budget = store_budget(store.bytes_max);
  std::uint64_t evicted = 0;
  for (std::uint64_t gone = 1; gone > 0; evicted += gone) {
    gone = 0;
    auto transaction = Transaction::begin(store.environment, Transaction::Mode::write);
    if (!transaction) break;
    Ledger ledger(*transaction);
    if (ledger.state().bytes <= budget) break;
    const std::uint64_t went = ledger.evict_to(budget, evicted_a_transaction);
    ledger.save();
    if (transaction->commit()) gone = went;
  }
  if (evicted > 0) log::info("store: {} blocks evicted to fit {} bytes", evicted, store.bytes_max);
  if (store.environment->file_bytes() <= store.bytes_max) return store;
  const std::uint64_t bytes_max = store.bytes_max;
  auto replaced = replace_locked(store, Content::kept);
  if (!replaced || replaced->environment->file_bytes() > bytes_max) {
    replaced = replace_locked(replaced ? *replaced : store, Content::dropped);
  }
  store = {};  // so that its generation is unused
  remove_unused_locked();
  return replaced;
}

// ---- replacing ----

Result<OpenStore> StoreFolder::replace(const OpenStore& old, Content content) {
  const auto locked = lock();
  if (!locked) return std::unexpected(locked.error());
  if (!is_current(old)) return open_locked(std::nullopt);
  return replace_locked(old, content);
}

Result<OpenStore> StoreFolder::replace_locked(const OpenStore& old, Content content) {
  const auto named = current();
  if (!named) return fail(ErrorCode::io, "{} cannot be read", (home() / "current").string());
  const Current next{.generation = named->generation + 1, .bytes_max = named->bytes_max};
  const fs::path folder = folder_of(next);
  std::error_code error;
  fs::remove_all(folder, error);
  fs::create_directories(folder, error);
  const auto give_up = [&](std::string_view doing) {
    fs::remove_all(folder, error);
    return fail(ErrorCode::io, "the store in {} could not be {}; see that the disk has room", directory_.string(),
                doing);
  };
  // Whoever writes waits, and finds that the store has moved.
  auto writer = Transaction::begin(old.environment, Transaction::Mode::write);
  if (content == Content::kept && (!writer || !old.environment->copy_to(folder))) return give_up("copied");
  auto opened = open_generation(next);
  if (!opened) return give_up("opened anew");
  if (auto written = write_current(home(), next); !written) return std::unexpected(written.error());
  if (writer) {
    Ledger ledger(*writer);
    ledger.state().moved = 1;
    ledger.save();
    // Should it not succeed, the others see the new generation by its name, a second later.
    if (!writer->commit()) log::debug("store: {} was not marked as moved", old.folder.string());
  }
  remove_unused_locked();
  return std::move(*opened);
}

Status StoreFolder::copy(const OpenStore& from, const fs::path& directory) const {
  std::error_code error;
  const fs::path folder = directory / "v1" / "1";
  fs::create_directories(directory, error);
  if (!fs::is_empty(directory, error) || error) {
    return fail(ErrorCode::invalid_argument, "{} is not an empty folder", directory.string());
  }
  fs::create_directories(folder, error);
  if (error || !from.environment || !from.environment->copy_to(folder)) {
    return fail(ErrorCode::io, "the store could not be copied to {}; see that the disk has room", directory.string());
  }
  return write_current(directory / "v1", {.generation = 1, .bytes_max = from.bytes_max});
}

void StoreFolder::remove_unused() {
  if (const auto locked = lock()) remove_unused_locked();
}

void StoreFolder::remove_unused_locked() {
  const auto named = current();
  if (!named) return;
  for (const fs::path& entry : entries_of(home())) {
    const auto generation = number_of(entry.filename().string());
    if (!generation || *generation == named->generation) continue;
    const auto unused = FileLock::try_take(Environment::users_file(entry), FileLock::Mode::exclusive);
    std::error_code ignored;
    if (unused) fs::remove_all(entry, ignored);
  }
}

// ---- setting aside ----

Result<OpenStore> StoreFolder::set_aside(const OpenStore& damaged) {
  const auto locked = lock();
  if (!locked) return std::unexpected(locked.error());
  if (is_current(damaged)) {
    if (auto renamed = rename_away(Unusable::damaged); !renamed) return std::unexpected(renamed.error());
  }
  return open_locked(damaged.bytes_max);
}

Status StoreFolder::rename_away(Unusable why) {
  std::vector<std::pair<std::uint64_t, fs::path>> aside;
  for (const fs::path& entry : entries_of(directory_)) {
    const std::string name = entry.filename().string();
    for (const std::string_view prefix : {"v1.damaged-", "v1.foreign-"}) {
      if (!name.starts_with(prefix)) continue;
      if (const auto number = number_of(std::string_view(name).substr(prefix.size()))) {
        aside.emplace_back(*number, entry);
      }
    }
  }
  std::ranges::sort(aside);
  const std::uint64_t number = aside.empty() ? 1 : aside.back().first + 1;
  const fs::path to =
      directory_ / ((why == Unusable::foreign ? "v1.foreign-" : "v1.damaged-") + std::to_string(number));
  std::error_code error;
  fs::rename(home(), to, error);
  if (error) return fail(ErrorCode::io, "{} cannot be renamed: {}", home().string(), error.message());
  log::warn("store: {} cannot be used and was set aside as {}; a new one is begun", home().string(), to.string());
  aside.emplace_back(number, to);
  for (std::size_t i = 0; i + set_aside_max < aside.size(); ++i) fs::remove_all(aside[i].second, error);
  return {};
}

// ---- the rest ----

bool StoreFolder::is_current(const OpenStore& store) const {
  const auto named = current();
  return named && folder_of(*named) == store.folder && named->bytes_max == store.bytes_max &&
         store.environment->lies_in(store.folder);
}

void StoreFolder::close(const OpenStore& store) {
  if (!store.environment->sync()) return;
  const auto locked = lock();
  if (!locked || !store.environment->is_alone()) return;
  auto transaction = Transaction::begin(store.environment, Transaction::Mode::write);
  if (!transaction) return;
  auto state = Ledger::read_state(*transaction);
  if (!state) return;
  state->clean = 1;
  Ledger::write_state(*transaction, *state);
  // The mark itself may get lost: then all that it speaks of lies on the disk none the less.
  if (transaction->commit() && !store.environment->sync()) log::debug("store: closed without a last sync");
}

}  // namespace caravan::kv
