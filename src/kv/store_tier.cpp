#include "kv/store_tier.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/mutex.h"
#include "kv/store_environment.h"
#include "kv/store_folder.h"
#include "kv/store_ledger.h"

namespace caravan::kv {
namespace {

constexpr auto view_age_max = std::chrono::milliseconds(50);
constexpr auto keep_interval = std::chrono::seconds(1);
constexpr auto sync_interval = std::chrono::seconds(30);
constexpr auto back_off_min = std::chrono::seconds(1);
constexpr auto back_off_max = std::chrono::seconds(60);
constexpr std::size_t notes_max = 4096;  // uses that wait to be written down; more are forgotten
constexpr std::uint64_t batch_bytes_max = std::uint64_t{16} << 20U;
constexpr std::uint64_t evicted_a_transaction = 4096;
constexpr std::uint64_t stamps_a_turnover = 64;
constexpr std::uint64_t frame_share_max = 8;    // a frame may take an eighth of the store
constexpr std::uint64_t extra_room_share = 20;  // what is evicted more when the map is full
constexpr std::size_t visited_a_snapshot = 64;

// A snapshot that all share who read at about the same time, so that leases do not need a place each in LMDB's table.
class ReadView {
 public:
  ReadView(OpenStore opened, Transaction transaction, TimePoint now, std::uint64_t commits_before)
      : store(std::move(opened)), begun(now), commits(commits_before), transaction_(std::move(transaction)) {}

  // Of pages of the trees alone, so nobody waits long for the other; what is found is read outside of the lock.
  std::optional<Bytes> find(Table table, const BlockId& id) {
    const Lock lock(mutex_);
    return transaction_.find(table, key_of(id));
  }
  std::optional<Transaction::Entry> after(Table table, const std::optional<BlockId>& id) {
    std::array<std::byte, sizeof(BlockId) + 1> from{};
    if (id) std::ranges::copy(key_of(*id), from.begin());
    const Lock lock(mutex_);
    return transaction_.first(table, id ? Bytes(from) : Bytes());
  }
  std::optional<StoreFault> fault() {
    const Lock lock(mutex_);
    return transaction_.fault();
  }
  bool tables_agree() {
    const Lock lock(mutex_);
    return Ledger::agrees(transaction_);
  }

  const OpenStore store;
  const TimePoint begun;
  const std::uint64_t commits;  // that this tier had made before

 private:
  Mutex mutex_;
  Transaction transaction_ GUARDED_BY(mutex_);
};

struct Held {
  Held(std::shared_ptr<ReadView> snapshot, std::shared_ptr<std::atomic<std::uint64_t>> leased)
      : view(std::move(snapshot)), count(std::move(leased)) {
    ++*count;
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;
  ~Held() { --*count; }
  std::shared_ptr<ReadView> view;
  std::shared_ptr<std::atomic<std::uint64_t>> count;
};

struct Sealed {
  BlockId id;
  Bytes frame;
  FrameHeader header;
};

}  // namespace

class StoreTier::State {
 public:
  State(StoreTierOptions options, StoreFolder folder, OpenStore store)
      : options_(std::move(options)),
        folder_(std::move(folder)),
        store_(std::move(store)),
        keeper_([this] { keep(); }) {
    view();  // so that stats() knows what is here
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    {
      const Lock lock(mutex_);
      stopped_ = true;
    }
    stop_wanted_.notify_all();
    keeper_.join();
    flush();
    if (const OpenStore store = current(); store.environment) folder_.close(store);
  }

  // ---- reading ----

  // Null: the store cannot be read now.
  std::shared_ptr<ReadView> view() {
    for (int attempt = 0; attempt < 2; ++attempt) {
      OpenStore store;
      std::uint64_t commits = 0;
      {
        const Lock lock(mutex_);
        auto shared = view_.lock();
        if (shared && shared->commits == commits_ && options_.now() - shared->begun < view_age_max) return shared;
        store = store_;
        commits = commits_;
      }
      auto begun = begin_view(store, commits);
      if (begun) return *begun;
      if (!recover(begun.error(), std::move(store))) break;
    }
    return nullptr;
  }

  std::optional<Bytes> find(const std::shared_ptr<ReadView>& view, Table table, const BlockId& id) {
    if (!view) return std::nullopt;
    auto found = view->find(table, id);
    if (const auto fault = view->fault()) recover(*fault, view->store);
    return found;
  }

  Lease get(const BlockId& namespace_id, const BlockId& id) {
    const auto view = this->view();
    const auto frame = find(view, Table::frames, id);
    if (!frame) {
      const Lock lock(mutex_);
      ++stats_.misses;
      return {};
    }
    const auto opened = open_frame(*frame, namespace_id, id);
    if (!opened || opened->header.codec != Codec::raw) {
      log::warn("store: block {} is {} and was removed", id.hex(),
                name_of(opened ? FrameFault::foreign : opened.error()));
      {
        const Lock lock(mutex_);
        ++stats_.misses;
        ++stats_.failures;
      }
      erase(id);
      return {};
    }
    {
      const Lock lock(mutex_);
      ++stats_.hits;
      note(id);
    }
    return {TierKind::store, *frame, std::make_shared<const Held>(view, leased_)};
  }

  void touch(std::span<const BlockId> ids) {
    const Lock lock(mutex_);
    for (const BlockId& id : ids) note(id);
  }

  // ---- writing ----

  std::size_t put(std::span<const Item> items) {
    std::vector<Sealed> sealed;
    for (const Item& item : items) {
      auto opened = open_frame(item.frame);
      if (opened && opened->header.id == item.id && opened->header.codec == Codec::raw) {
        sealed.push_back({.id = item.id, .frame = item.frame, .header = std::move(opened->header)});
      } else {
        const Lock lock(mutex_);
        ++stats_.failures;
      }
    }
    std::size_t kept = 0;
    const std::uint64_t batch_bytes = std::min(batch_bytes_max, options_.bytes_max / 32);
    for (auto begin = sealed.begin(); begin != sealed.end();) {
      auto end = begin + 1;
      std::uint64_t bytes = begin->frame.size();
      while (end != sealed.end() && bytes + end->frame.size() <= batch_bytes) bytes += (end++)->frame.size();
      kept += put_batch(std::span(begin, end));
      begin = end;
    }
    return kept;
  }

  bool erase(const BlockId& id) {
    bool erased = false;
    return write([&](Ledger& ledger, std::uint64_t) { erased = ledger.remove(id); }) && erased;
  }

  bool pin(const BlockId& id, bool pinned) {
    bool done = false;
    return write([&](Ledger& ledger, std::uint64_t budget) {
             done = pinned ? ledger.pin(id, budget / 2) : ledger.unpin(id);
           }) &&
           done;
  }

  // Until so many bytes are gone in all, in transactions of bounded size.
  std::uint64_t evict(std::uint64_t bytes) {
    std::uint64_t gone = 0;
    while (gone < bytes) {
      std::uint64_t blocks = 0;
      std::uint64_t went = 0;
      const auto written = write([&](Ledger& ledger, std::uint64_t) {
        const std::uint64_t before = ledger.state().bytes;
        const std::uint64_t left = bytes - gone;
        blocks = ledger.evict_to(before - std::min(before, left), evicted_a_transaction);
        went = before - ledger.state().bytes;
      });
      if (!written || blocks == 0) break;
      gone += went;
      const Lock lock(mutex_);
      stats_.evicted += blocks;
    }
    return gone;
  }

  void flush() {
    std::vector<BlockId> notes;
    {
      const Lock lock(mutex_);
      if (is_degraded()) return;
      notes.swap(notes_);
    }
    if (notes.empty()) return;
    const auto written = write([&](Ledger& ledger, std::uint64_t) { ledger.use(notes); }, Change::uses);
    if (!written) log::debug("store: {} uses were forgotten: {}", notes.size(), name_of(written.error()));
  }

  // ---- the whole ----

  Status replace(StoreFolder::Content content) {
    {
      const Lock changing(change_mutex_);
      auto replaced = folder_.replace(current(), content);
      if (!replaced) return std::unexpected(replaced.error());
      publish(std::move(*replaced));
      const Lock lock(mutex_);
      degraded_until_ = {};  // there is room to try with
    }
    folder_.remove_unused();  // unless leases still read the old one
    view();                   // so that stats() knows what is here
    return {};
  }

  Status copy_to(const std::filesystem::path& directory) { return folder_.copy(current(), directory); }

  TierStats stats() {
    const Lock lock(mutex_);
    TierStats stats = stats_;
    stats.blocks = known_.blocks;
    stats.bytes = known_.bytes;
    stats.frame_bytes = known_.frame_bytes;
    stats.bytes_limit = store_.bytes_max;
    stats.leased = *leased_;
    stats.degraded = back_off_ > Duration::zero() || !store_.environment;
    return stats;
  }

  void note_damaged(std::uint64_t frames) {
    const Lock lock(mutex_);
    stats_.failures += frames;
  }

 private:
  OpenStore current() {
    const Lock lock(mutex_);
    return store_;
  }

  StoreResult<std::shared_ptr<ReadView>> begin_view(const OpenStore& store, std::uint64_t commits) {
    if (!store.environment) return std::unexpected(StoreFault::stale);
    const TimePoint now = options_.now();
    auto transaction = Transaction::begin(store.environment, Transaction::Mode::read);
    if (!transaction) return std::unexpected(transaction.error());
    Ledger ledger(*transaction);
    if (const auto fault = transaction->fault()) return std::unexpected(*fault);
    auto view = std::make_shared<ReadView>(store, std::move(*transaction), now, commits);
    const Lock lock(mutex_);
    known_ = ledger.state();
    view_ = view;
    return view;
  }

  void note(const BlockId& id) REQUIRES(mutex_) {
    if (notes_.size() < notes_max) notes_.push_back(id);
  }

  // ---- transactions ----

  // What a transaction changes: the recency of blocks alone, or which there are, so that snapshots are out of date.
  enum class Change : std::uint8_t { uses, blocks };

  // `work(ledger, budget)` may run more than once; it is done when this succeeds.
  template <class Work>
  StoreResult<void> write(const Work& work, Change change = Change::blocks) {
    StoreResult<void> written = std::unexpected(StoreFault::stale);
    for (int attempt = 0; attempt < 2 && !written; ++attempt) {
      OpenStore store = current();
      written = write_to(store, work, change);
      if (!written && !recover(written.error(), std::move(store))) break;
    }
    return written;
  }

  template <class Work>
  StoreResult<void> write_to(const OpenStore& store, const Work& work, Change change) {
    if (!store.environment) return std::unexpected(StoreFault::stale);
    auto transaction = Transaction::begin(store.environment, Transaction::Mode::write);
    if (!transaction) return std::unexpected(transaction.error());
    Ledger ledger(*transaction);
    work(ledger, store_budget(store.bytes_max));
    ledger.save();
    if (auto committed = transaction->commit(); !committed) return committed;
    const Lock lock(mutex_);
    known_ = ledger.state();
    dirty_ = true;
    if (change == Change::blocks) ++commits_;
    return {};
  }

  std::size_t put_batch(std::span<const Sealed> batch) {
    {
      const Lock lock(mutex_);
      if (is_degraded()) {
        stats_.refused += batch.size();
        return 0;
      }
    }
    std::uint64_t kept = 0;
    std::uint64_t inserted = 0;
    std::uint64_t evicted = 0;
    const auto insert = [&](Ledger& ledger, std::uint64_t budget) {
      kept = inserted = evicted = 0;
      ledger.advance_every(budget / stamps_a_turnover);
      for (const Sealed& each : batch) {
        const std::uint64_t cost = cost_of(each.frame.size());
        if (!ledger.find(each.id)) {
          if (cost > budget / frame_share_max) continue;
          evicted += ledger.evict_to(budget - cost, evicted_a_transaction);
          if (ledger.state().bytes > budget - cost) continue;
          const std::span<std::byte> place = ledger.insert(each.id, each.header, each.frame.size());
          if (place.empty()) return;
          std::ranges::copy(each.frame, place.begin());
          ++inserted;
        }
        ++kept;
      }
    };
    auto written = write(insert);
    if (!written && written.error() == StoreFault::full && make_room()) written = write(insert);
    const Lock lock(mutex_);
    if (!written) {
      degrade(written.error());
      stats_.refused += batch.size();
      return 0;
    }
    recovered();
    stats_.inserted += inserted;
    stats_.evicted += evicted;
    stats_.refused += batch.size() - kept;
    return kept;
  }

  // The map is full, though less is kept than may be: free pages lie apart from each other, or wait for readers. Evicts
  // a little more, but never below a half: a reader who stays must not cost us the store. Pages that come free are used
  // again from the second transaction after that on.
  bool make_room() {
    std::uint64_t evicted = 0;
    auto written = write([&](Ledger& ledger, std::uint64_t budget) {
      const std::uint64_t extra = budget / extra_room_share;
      const std::uint64_t bytes = ledger.state().bytes;
      evicted = bytes > budget / 2 + extra ? ledger.evict_to(bytes - extra, evicted_a_transaction) : 0;
    });
    for (int more = 0; more < 2 && written; ++more) written = write([](Ledger&, std::uint64_t) {});
    const Lock lock(mutex_);
    stats_.evicted += evicted;
    return written.has_value();
  }

  // ---- trouble ----

  [[nodiscard]] bool is_degraded() const REQUIRES(mutex_) { return options_.now() < degraded_until_; }

  void degrade(StoreFault fault) REQUIRES(mutex_) {
    if (back_off_ == Duration::zero()) log::warn("store: not written to for now: {}", name_of(fault));
    back_off_ = std::clamp<Duration>(2 * back_off_, back_off_min, back_off_max);
    degraded_until_ = options_.now() + back_off_;
    ++stats_.failures;
  }
  void recovered() REQUIRES(mutex_) {
    if (back_off_ > Duration::zero()) log::info("store: written to again");
    back_off_ = Duration::zero();
  }

  // Opens the store anew where that is what the fault asks for. `used` is where it appeared; whether to try again.
  bool recover(StoreFault fault, OpenStore used) {
    if (fault == StoreFault::full || fault == StoreFault::disk) return false;
    const Lock changing(change_mutex_);
    {
      const Lock lock(mutex_);
      if (store_.environment != used.environment) return true;  // another thread did
      if (!store_.environment && options_.now() < reopen_after_) return false;
      store_.environment.reset();
      reopen_after_ = options_.now() + back_off_min;
    }
    // An environment of the same file is opened anew only once nobody holds the old one.
    if (fault == StoreFault::stale) used.environment.reset();
    auto opened = fault == StoreFault::damaged ? folder_.set_aside(used) : folder_.open(std::nullopt);
    if (!opened) {
      log::warn("store: {}", opened.error().message);
      return false;
    }
    publish(std::move(*opened));
    return true;
  }

  void publish(OpenStore store) {
    const Lock lock(mutex_);
    store_ = std::move(store);
    view_.reset();
    ++commits_;
  }

  // ---- in the background ----

  void keep() {
    TimePoint synced = Clock::now();
    while (true) {
      {
        Lock lock(mutex_);
        const TimePoint wake = Clock::now() + keep_interval;
        while (!stopped_ && Clock::now() < wake) lock.wait_until(stop_wanted_, wake);
        if (stopped_) return;
      }
      flush();
      OpenStore store = current();
      if (store.environment && !folder_.is_current(store)) {
        recover(StoreFault::stale, std::move(store));
        store = {};
      }
      view();  // what others changed
      if (Clock::now() - synced < sync_interval) continue;
      synced = Clock::now();
      tidy(current());
    }
  }

  void tidy(const OpenStore& store) {
    if (!store.environment) return;
    store.environment->drop_dead_readers();
    folder_.remove_unused();
    const auto was_dirty = [&] {
      const Lock lock(mutex_);
      return std::exchange(dirty_, false);
    }();
    if (!was_dirty || store.environment->sync()) return;
    const Lock lock(mutex_);
    dirty_ = true;
    ++stats_.failures;
  }

  const StoreTierOptions options_;
  StoreFolder folder_;
  const std::shared_ptr<std::atomic<std::uint64_t>> leased_ = std::make_shared<std::atomic<std::uint64_t>>(0);

  Mutex change_mutex_;  // held while the store is opened anew or replaced; before mutex_
  Mutex mutex_;         // never across I/O
  OpenStore store_ GUARDED_BY(mutex_);
  std::weak_ptr<ReadView> view_ GUARDED_BY(mutex_);  // lives while a lease does, so an idle tier holds no snapshot
  std::uint64_t commits_ GUARDED_BY(mutex_) = 0;
  StoreState known_ GUARDED_BY(mutex_);
  std::vector<BlockId> notes_ GUARDED_BY(mutex_);
  TierStats stats_ GUARDED_BY(mutex_);
  Duration back_off_ GUARDED_BY(mutex_) = Duration::zero();
  TimePoint degraded_until_ GUARDED_BY(mutex_);
  TimePoint reopen_after_ GUARDED_BY(mutex_);
  bool dirty_ GUARDED_BY(mutex_) = false;
  bool stopped_ GUARDED_BY(mutex_) = false;
  std::condition_variable stop_wanted_;
  std::thread keeper_;
};

Result<std::unique_ptr<StoreTier>> StoreTier::open(StoreTierOptions options) {
  if (options.bytes_max < store_bytes_min) {
    return fail(ErrorCode::invalid_argument, "a store of {} bytes is too small; give at least 1M", options.bytes_max);
  }
  StoreFolder folder(options.directory);
  auto store = folder.open(options.bytes_max);
  if (!store) return std::unexpected(store.error());
  return std::unique_ptr<StoreTier>(
      new StoreTier(std::make_unique<State>(std::move(options), std::move(folder), std::move(*store))));
}

StoreTier::StoreTier(std::unique_ptr<State> state) : state_(std::move(state)) {}
StoreTier::~StoreTier() = default;

std::size_t StoreTier::put_many(std::span<const Item> items) { return state_->put(items); }

void StoreTier::touch(std::span<const BlockId> ids) { state_->touch(ids); }

bool StoreTier::pin(const BlockId& id) { return state_->pin(id, true); }

bool StoreTier::unpin(const BlockId& id) { return state_->pin(id, false); }

std::uint64_t StoreTier::evict(std::uint64_t bytes) { return state_->evict(bytes); }

Status StoreTier::clear() { return state_->replace(StoreFolder::Content::dropped); }

Status StoreTier::compact() { return state_->replace(StoreFolder::Content::kept); }

Status StoreTier::backup(const std::filesystem::path& directory) {
  if (auto copied = state_->copy_to(directory); !copied) return copied;
  auto copy = open({.directory = directory, .bytes_max = stats().bytes_limit});
  if (!copy) return std::unexpected(copy.error());
  const Verified verified = (*copy)->verify();
  if (!verified.tables_agree) {
    return fail(ErrorCode::io, "the copy in {} contradicts itself; remove it", directory.string());
  }
  if (verified.damaged > 0) log::warn("store: {} damaged blocks are not in the copy", verified.damaged);
  return {};
}

void StoreTier::for_each(const std::function<bool(const Block&)>& visit) {
  std::optional<BlockId> last;
  while (true) {
    const auto view = state_->view();
    if (!view) return;
    std::vector<Block> blocks;
    while (blocks.size() < visited_a_snapshot) {
      const auto entry = view->after(Table::meta, last);
      const auto block = entry ? Ledger::read_entry(*entry) : std::nullopt;
      if (!block) break;
      last = block->id;
      blocks.push_back({.id = block->id,
                        .bytes = block->record.frame_bytes,
                        .uses = block->record.uses,
                        .pinned = block->record.pinned != 0});
    }
    if (blocks.empty()) return;
    for (const Block& block : blocks) {
      if (!visit(block)) return;
    }
  }
}

StoreTier::Verified StoreTier::verify() {
  Verified verified;
  std::optional<BlockId> last;
  std::vector<BlockId> damaged;
  auto view = state_->view();
  if (!view) return verified;
  verified.tables_agree = view->tables_agree();
  for (std::size_t visited = 1; view; ++visited) {
    const auto entry = view->after(Table::meta, last);
    const auto block = entry ? Ledger::read_entry(*entry) : std::nullopt;
    if (!block) break;
    last = block->id;
    const auto frame = view->find(Table::frames, block->id);
    if (frame && open_frame(*frame, block->record.namespace_id, block->id)) {
      ++verified.blocks;
    } else {
      damaged.push_back(block->id);
    }
    if (visited % visited_a_snapshot != 0) continue;
    view.reset();
    view = state_->view();
  }
  view.reset();
  verified.damaged = damaged.size();
  state_->note_damaged(damaged.size());
  for (const BlockId& id : damaged) state_->erase(id);
  return verified;
}

void StoreTier::flush() { state_->flush(); }

std::size_t StoreTier::match(std::span<const BlockId> ids) {
  const auto view = state_->view();
  std::size_t count = 0;
  while (count < ids.size() && state_->find(view, Table::meta, ids[count])) ++count;
  return count;
}

bool StoreTier::contains(const BlockId& id) { return state_->find(state_->view(), Table::meta, id).has_value(); }

Lease StoreTier::get(const BlockId& namespace_id, const BlockId& id) { return state_->get(namespace_id, id); }

bool StoreTier::put(const BlockId& id, Bytes frame) {
  const Item item{.id = id, .frame = frame};
  return state_->put(std::span(&item, 1)) == 1;
}

bool StoreTier::erase(const BlockId& id) { return state_->erase(id); }

TierStats StoreTier::stats() const { return state_->stats(); }

}  // namespace caravan::kv
