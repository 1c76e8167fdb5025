#include "kv/host_tier.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <limits>
#include <thread>
#include <utility>

#include <boost/unordered/unordered_flat_set.hpp>

#include "base/check.h"
#include "base/log.h"
#include "base/mutex.h"
#include "kv/block_format.h"
#include "kv/eviction.h"
#include "kv/slab.h"

namespace caravan::kv {
namespace {

constexpr std::uint32_t class_bits = 5;
constexpr std::uint32_t slot_bits = 32 - class_bits;
constexpr std::size_t classes_max = std::size_t{1} << class_bits;
constexpr std::uint64_t region_bytes_max = std::uint64_t{64} << 20U;
constexpr std::uint64_t regions_least = 32;      // into so many a budget is cut, so that sizes can share it
constexpr std::uint64_t slot_alignment = 64;     // as that of payloads within frames
constexpr std::uint64_t slack_share = 8;         // a frame may lie in a slot larger by an eighth
constexpr std::uint64_t index_bytes_a_slot = 6;  // of the index: a place, and its share of the buckets' metadata
constexpr double worth_ratio = 2;                // by so much must other sizes be worth less to lose a region
constexpr std::uint32_t compare_interval = 16;   // evictions between two looks at the other sizes

enum class Phase : std::uint8_t {
  free,
  writing,  // reserved
  kept,     // in the index
  leaving,  // erased, but leased still
};

struct Entry {
  BlockId id;
  std::uint32_t frame_bytes = 0;
  std::uint32_t leases = 0;
  Phase phase = Phase::free;
  bool pinned = false;
};

struct Place {
  std::uint32_t size_class;
  std::uint32_t slot;

  [[nodiscard]] std::uint32_t packed() const { return size_class << slot_bits | slot; }
  static Place of(std::uint32_t packed) {
    return {.size_class = packed >> slot_bits, .slot = packed & ((1U << slot_bits) - 1)};
  }
};

struct SizeClass {
  SizeClass(std::uint64_t slot_bytes, std::uint64_t region_bytes) : slab(slot_bytes, region_bytes) {}

  Entry& at(std::uint32_t slot) { return entries[slot / slab.slots_per_region()][slot % slab.slots_per_region()]; }
  [[nodiscard]] const Entry& at(std::uint32_t slot) const {
    return entries[slot / slab.slots_per_region()][slot % slab.slots_per_region()];
  }
  [[nodiscard]] std::uint64_t entry_bytes() const { return slab.slots_per_region() * sizeof(Entry); }

  Slab slab;
  std::vector<std::unique_ptr<Entry[]>> entries;  // one array a region
  Eviction eviction;
  std::uint32_t kept = 0;
  std::uint32_t evictions = 0;  // since the other sizes were looked at
};

using Classes = std::array<std::unique_ptr<SizeClass>, classes_max>;

const BlockId& id_of(const Classes& classes, std::uint32_t packed) {
  const Place place = Place::of(packed);
  return classes[place.size_class]->at(place.slot).id;
}

// The index holds places alone; the ids lie in the entries.
struct PlaceHash {
  using is_transparent = void;
  using is_avalanching = void;
  const Classes* classes;
  std::size_t operator()(const BlockId& id) const { return BlockIdHash()(id); }
  std::size_t operator()(std::uint32_t packed) const { return (*this)(id_of(*classes, packed)); }
};
struct PlaceEqual {
  using is_transparent = void;
  const Classes* classes;
  bool operator()(std::uint32_t a, std::uint32_t b) const { return a == b; }
  bool operator()(const BlockId& id, std::uint32_t packed) const { return id == id_of(*classes, packed); }
  bool operator()(std::uint32_t packed, const BlockId& id) const { return (*this)(id, packed); }
};

std::uint64_t name_of(const BlockId& id) { return BlockIdHash()(id); }

}  // namespace

class HostTier::State : public std::enable_shared_from_this<HostTier::State> {
 public:
  explicit State(HostTierOptions options)
      : options_(std::move(options)),
        region_bytes_(std::clamp(options_.bytes_max / regions_least, slot_alignment, region_bytes_max)),
        index_(0, PlaceHash{&classes_}, PlaceEqual{&classes_}),
        toucher_([this] { touch_ahead(); }) {}
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // The slots and leases that outlive the tier need no thread.
  void stop() {
    {
      const Lock lock(mutex_);
      stopped_ = true;
    }
    touch_wanted_.notify_all();
    toucher_.join();
  }

  void prepare(std::uint64_t frame_bytes) {
    const Lock lock(mutex_);
    if (frame_bytes == 0 || frame_bytes > frame_bytes_most()) return;
    if (class_for(frame_bytes)) touch_wanted_.notify_all();
  }

  struct Reserved {
    Place place;
    std::span<std::byte> bytes;
  };
  std::optional<Reserved> reserve(const BlockId& id, const BlockId& parent, std::uint64_t frame_bytes) {
    const Lock lock(mutex_);
    const auto number = frame_bytes > 0 && frame_bytes <= frame_bytes_most() ? class_for(frame_bytes) : std::nullopt;
    if (!number) {
      ++stats_.refused;
      return std::nullopt;
    }
    SizeClass& size = *classes_[*number];
    const auto slot = room(*number, {.name = name_of(id), .parent = parent_entry(*number, parent)});
    if (size.slab.free() < size.slab.slots_per_region() / 2) touch_wanted_.notify_all();
    if (!slot) {
      ++stats_.refused;
      return std::nullopt;
    }
    Entry& entry = size.at(*slot);
    entry = {.id = id, .frame_bytes = static_cast<std::uint32_t>(frame_bytes), .phase = Phase::writing};
    return Reserved{.place = {.size_class = *number, .slot = *slot},
                    .bytes = size.slab.bytes(*slot).first(frame_bytes)};
  }

  void commit(Place place, const BlockId& parent) {
    const Lock lock(mutex_);
    SizeClass& size = *classes_[place.size_class];
    Entry& entry = size.at(place.slot);
    CHECK(entry.phase == Phase::writing);
    if (index_.contains(entry.id)) return free_slot(place);
    entry.phase = Phase::kept;
    index_.insert(place.packed());
    size.eviction.insert(place.slot, {.name = name_of(entry.id), .parent = parent_entry(place.size_class, parent)},
                         now());
    ++size.kept;
    ++stats_.inserted;
    ++stats_.blocks;
    stats_.frame_bytes += entry.frame_bytes;
  }

  void abandon(Place place) {
    const Lock lock(mutex_);
    CHECK(entry_at(place).phase == Phase::writing);
    free_slot(place);
  }

  bool contains(const BlockId& id) {
    const Lock lock(mutex_);
    return index_.contains(id);
  }
  std::size_t match(std::span<const BlockId> ids) {
    const Lock lock(mutex_);
    std::size_t count = 0;
    while (count < ids.size() && index_.contains(ids[count])) ++count;
    return count;
  }

  enum class Use : bool { no, yes };
  Lease lease(const BlockId& id, Use use) {
    const Lock lock(mutex_);
    const auto found = index_.find(id);
    if (found == index_.end()) {
      if (use == Use::yes) ++stats_.misses;
      return {};
    }
    const Place place = Place::of(*found);
    SizeClass& size = *classes_[place.size_class];
    Entry& entry = size.at(place.slot);
    if (use == Use::yes) {
      ++stats_.hits;
      size.eviction.touch(place.slot, now());
    }
    if (entry.leases++ == 0) ++stats_.leased;
    struct Held {
      Held(std::shared_ptr<State> tier, Place held) : state(std::move(tier)), place(held) {}
      Held(const Held&) = delete;
      Held& operator=(const Held&) = delete;
      ~Held() { state->release(place); }
      std::shared_ptr<State> state;
      Place place;
    };
    return {TierKind::host, size.slab.bytes(place.slot).first(entry.frame_bytes),
            std::make_shared<const Held>(shared_from_this(), place)};
  }

  void touch(std::span<const BlockId> ids) {
    const Lock lock(mutex_);
    for (const BlockId& id : ids) {
      const auto found = index_.find(id);
      if (found == index_.end()) continue;
      const Place place = Place::of(*found);
      classes_[place.size_class]->eviction.touch(place.slot, now());
    }
  }

  bool pin(const BlockId& id, bool pinned) {
    const Lock lock(mutex_);
    const auto found = index_.find(id);
    if (found == index_.end()) return false;
    const Place place = Place::of(*found);
    Entry& entry = entry_at(place);
    if (entry.pinned == pinned) return true;
    const std::uint64_t bytes = classes_[place.size_class]->slab.slot_bytes();
    if (pinned && pinned_bytes_ + bytes > options_.bytes_max / 2) return false;
    entry.pinned = pinned;
    pinned_bytes_ += pinned ? bytes : -bytes;
    return true;
  }

  bool erase(const BlockId& id) {
    const Lock lock(mutex_);
    const auto found = index_.find(id);
    if (found == index_.end()) return false;
    remove(Place::of(*found));
    return true;
  }

  std::uint64_t evict(std::uint64_t bytes) {
    const Lock lock(mutex_);
    std::uint64_t gone = 0;
    while (gone < bytes) {
      const auto least = least_worth(classes_max);
      if (!least) break;
      gone += entry_at(*least).frame_bytes;
      ++stats_.evicted;
      remove(*least);
    }
    return gone;
  }

  void clear() {
    const Lock lock(mutex_);
    std::vector<std::uint32_t> all;
    all.reserve(index_.size());
    for (const std::uint32_t packed : index_) all.push_back(packed);
    for (const std::uint32_t packed : all) remove(Place::of(packed));
  }

  std::vector<Block> list(std::size_t most) {
    const Lock lock(mutex_);
    std::vector<Block> blocks;
    for (const auto& size : classes_) {
      if (!size) continue;
      for_each_slot(*size, [&](std::uint32_t, const Entry& entry) {
        if (entry.phase != Phase::kept || blocks.size() >= most) return;
        blocks.push_back({.id = entry.id, .bytes = entry.frame_bytes, .leases = entry.leases, .pinned = entry.pinned});
      });
    }
    return blocks;
  }

  TierStats stats() {
    const Lock lock(mutex_);
    TierStats stats = stats_;
    stats.bytes = used_bytes();
    stats.bytes_limit = options_.bytes_max;
    return stats;
  }

  void note_failure() {
    const Lock lock(mutex_);
    ++stats_.failures;
  }

 private:
  [[nodiscard]] double now() const { return seconds(options_.now().time_since_epoch()); }
  Entry& entry_at(Place place) REQUIRES(mutex_) { return classes_[place.size_class]->at(place.slot); }
  static bool is_held(const Entry& entry) { return entry.leases > 0 || entry.pinned; }

  template <class Visit>
  static void for_each_slot(SizeClass& size, const Visit& visit) {
    for (std::uint32_t slot = 0; slot < size.slab.end(); ++slot) {
      if (size.slab.has_region(slot / size.slab.slots_per_region())) visit(slot, size.at(slot));
    }
  }

  // ---- budget ----

  [[nodiscard]] std::uint64_t frame_bytes_most() const {
    return std::min<std::uint64_t>(options_.bytes_max, std::numeric_limits<std::uint32_t>::max());
  }
  [[nodiscard]] std::uint64_t used_bytes() const REQUIRES(mutex_) {
    std::uint64_t bytes = region_and_entry_bytes_ + coming_bytes_ + index_.bucket_count() * index_bytes_a_slot;
    for (const auto& size : classes_) bytes += size ? size->eviction.bytes() : 0;
    return bytes;
  }
  // What another region of this size would add, with everything that is remembered about its slots.
  static std::uint64_t growth_bytes(const SizeClass& size) {
    return size.slab.region_bytes() + size.entry_bytes() +
           size.slab.slots_per_region() * (Eviction::bytes_an_entry + index_bytes_a_slot);
  }
  [[nodiscard]] bool may_grow(const SizeClass& size) const REQUIRES(mutex_) {
    const bool numbers_left = size.slab.end() < (1U << slot_bits) - size.slab.slots_per_region();
    return numbers_left && used_bytes() + growth_bytes(size) <= options_.bytes_max;
  }

  // ---- sizes ----

  std::optional<std::uint32_t> class_for(std::uint64_t frame_bytes) REQUIRES(mutex_) {
    std::optional<std::uint32_t> best;
    std::optional<std::uint32_t> unused;
    for (std::uint32_t number = 0; number < classes_max; ++number) {
      const auto& size = classes_[number];
      if (!size) {
        unused = number;
        continue;
      }
      if (size->slab.regions() == 0 && size.get() != growing_ && !unused) unused = number;
      const std::uint64_t slot = size->slab.slot_bytes();
      const bool fits = slot >= frame_bytes && slot - frame_bytes <= frame_bytes / slack_share + slot_alignment;
      if (fits && (!best || slot < classes_[*best]->slab.slot_bytes())) best = number;
    }
    if (best) return best;
    if (!unused) return std::nullopt;
    const std::uint64_t slot_bytes = (frame_bytes + slot_alignment - 1) / slot_alignment * slot_alignment;
    classes_[*unused] = std::make_unique<SizeClass>(slot_bytes, region_bytes_);
    return unused;
  }

  void add_region(SizeClass& size, Region region) REQUIRES(mutex_) {
    const std::size_t number = size.slab.add(std::move(region));
    size.entries.resize(std::max(size.entries.size(), number + 1));
    size.entries[number] = std::make_unique<Entry[]>(size.slab.slots_per_region());
    region_and_entry_bytes_ += size.slab.region_bytes() + size.entry_bytes();
  }

  void remove_region(std::uint32_t number, std::size_t region) REQUIRES(mutex_) {
    SizeClass& size = *classes_[number];
    const std::uint32_t first = static_cast<std::uint32_t>(region) * size.slab.slots_per_region();
    for (std::uint32_t slot = first; slot < first + size.slab.slots_per_region(); ++slot) {
      if (size.at(slot).phase != Phase::kept) continue;
      ++stats_.evicted;
      remove({.size_class = number, .slot = slot});
    }
    size.slab.remove(region);
    size.entries[region].reset();
    region_and_entry_bytes_ -= size.slab.region_bytes() + size.entry_bytes();
  }

  // ---- room ----

  std::optional<std::uint32_t> room(std::uint32_t number, const Eviction::Newcomer& newcomer) REQUIRES(mutex_) {
    SizeClass& size = *classes_[number];
    if (const auto slot = size.slab.take()) return slot;
    if (grow(size)) return size.slab.take();
    const auto victim = victim_of(size);
    const bool compare = !victim || ++size.evictions % compare_interval == 0;
    if (compare && take_region(number, victim)) return size.slab.take();
    if (!victim || !size.eviction.admit(newcomer, *victim, now())) return std::nullopt;
    ++stats_.evicted;
    remove({.size_class = number, .slot = victim->entry});
    return size.slab.take();
  }

  // Another region, not touched yet: the one who copies into it pays. Rare, for regions are made ready ahead.
  bool grow(SizeClass& size) REQUIRES(mutex_) {
    if (!may_grow(size)) return false;
    auto region = Region::map(size.slab.region_bytes(), Region::Touch::none);
    if (!region) return false;
    add_region(size, std::move(*region));
    return true;
  }

  std::optional<Eviction::Victim> victim_of(SizeClass& size) REQUIRES(mutex_) {
    return size.eviction.victim(now(), [&](std::uint32_t slot) { return is_held(size.at(slot)); });
  }

  // What is least worth its bytes, of all sizes but one.
  std::optional<Place> least_worth(std::size_t but, double* worth_a_byte = nullptr) REQUIRES(mutex_) {
    std::optional<Place> least;
    double least_worth = 0;
    for (std::uint32_t number = 0; number < classes_max; ++number) {
      if (!classes_[number] || number == but) continue;
      const auto victim = victim_of(*classes_[number]);
      if (!victim) continue;
      const double worth = victim->worth / static_cast<double>(classes_[number]->slab.slot_bytes());
      if (least && worth >= least_worth) continue;
      least = {.size_class = number, .slot = victim->entry};
      least_worth = worth;
    }
    if (worth_a_byte != nullptr) *worth_a_byte = least_worth;
    return least;
  }

  // Takes memory from the size whose blocks are worth least, when they are worth much less than `own`.
  bool take_region(std::uint32_t number, const std::optional<Eviction::Victim>& own) REQUIRES(mutex_) {
    SizeClass& size = *classes_[number];
    while (!may_grow(size)) {
      double worth = 0;
      const auto least = least_worth(number, &worth);
      const double own_worth = own ? own->worth / static_cast<double>(size.slab.slot_bytes()) : 0;
      const auto idle = idle_region(number);
      if (idle) {
        remove_region(idle->first, idle->second);
        continue;
      }
      if (!least || (own && worth * worth_ratio > own_worth)) return false;
      const auto region = emptiest_region(*classes_[least->size_class]);
      if (!region) return false;
      remove_region(least->size_class, *region);
    }
    return grow(size);
  }

  // A region of another size in which nothing lies.
  std::optional<std::pair<std::uint32_t, std::size_t>> idle_region(std::uint32_t but) REQUIRES(mutex_) {
    for (std::uint32_t number = 0; number < classes_max; ++number) {
      const auto& size = classes_[number];
      if (!size || number == but || size->slab.free() < size->slab.slots_per_region()) continue;
      for (std::size_t region = 0; region < size->entries.size(); ++region) {
        if (size->slab.has_region(region) && count_used(*size, region) == 0U) return std::pair(number, region);
      }
    }
    return std::nullopt;
  }
  std::optional<std::size_t> emptiest_region(SizeClass& size) REQUIRES(mutex_) {
    std::optional<std::size_t> best;
    std::uint32_t best_used = 0;
    for (std::size_t region = 0; region < size.entries.size(); ++region) {
      if (!size.slab.has_region(region)) continue;
      const auto used = count_used(size, region);
      if (!used || (best && *used >= best_used)) continue;
      best = region;
      best_used = *used;
    }
    return best;
  }
  // Slots in use; none when one of them is held and the region has to stay.
  static std::optional<std::uint32_t> count_used(const SizeClass& size, std::size_t region) {
    std::uint32_t used = 0;
    for (std::uint32_t i = 0; i < size.slab.slots_per_region(); ++i) {
      const Entry& entry = size.entries[region][i];
      if (entry.phase == Phase::writing || entry.phase == Phase::leaving || is_held(entry)) return std::nullopt;
      used += entry.phase == Phase::kept ? 1 : 0;
    }
    return used;
  }

  // ---- leaving ----

  // Out of the index; the slot is free once nobody holds it.
  void remove(Place place) REQUIRES(mutex_) {
    SizeClass& size = *classes_[place.size_class];
    Entry& entry = size.at(place.slot);
    CHECK(entry.phase == Phase::kept);
    const auto found = index_.find(entry.id);
    CHECK(found != index_.end());
    index_.erase(found);
    size.eviction.erase(place.slot, now());
    if (entry.pinned) pinned_bytes_ -= size.slab.slot_bytes();
    entry.pinned = false;
    --size.kept;
    --stats_.blocks;
    stats_.frame_bytes -= entry.frame_bytes;
    entry.phase = Phase::leaving;
    if (entry.leases == 0) free_slot(place);
  }
  void free_slot(Place place) REQUIRES(mutex_) {
    entry_at(place).phase = Phase::free;
    classes_[place.size_class]->slab.give(place.slot);
  }
  void release(Place place) {
    const Lock lock(mutex_);
    Entry& entry = entry_at(place);
    CHECK(entry.leases > 0);
    if (--entry.leases > 0) return;
    --stats_.leased;
    if (entry.phase == Phase::leaving) free_slot(place);
  }

  std::uint32_t parent_entry(std::uint32_t number, const BlockId& parent) REQUIRES(mutex_) {
    const auto found = index_.find(parent);
    if (found == index_.end()) return Eviction::none;
    const Place place = Place::of(*found);
    return place.size_class == number ? place.slot : Eviction::none;
  }

  // ---- touching ahead ----

  // A size whose free slots run out while the budget has room for more.
  SizeClass* wants_touching() REQUIRES(mutex_) {
    for (const auto& size : classes_) {
      if (size && size->slab.free() < (size->slab.slots_per_region() + 1) / 2 && may_grow(*size)) return size.get();
    }
    return nullptr;
  }
  // On a thread of its own.
  void touch_ahead() {
    while (true) {
      SizeClass* size = nullptr;
      {
        Lock lock(mutex_);
        while (!stopped_ && (size = wants_touching()) == nullptr) lock.wait(touch_wanted_);
        if (stopped_) return;
        coming_bytes_ = growth_bytes(*size);
        growing_ = size;
      }
      auto region = Region::map(size->slab.region_bytes(), Region::Touch::all);
      const Lock lock(mutex_);
      coming_bytes_ = 0;
      growing_ = nullptr;
      if (region) {
        add_region(*size, std::move(*region));
      } else {
        log::warn("kv: host tier: the system has no memory for another {} bytes", size->slab.region_bytes());
        stopped_ = true;
      }
    }
  }

  const HostTierOptions options_;
  const std::uint64_t region_bytes_;

  Mutex mutex_;
  std::condition_variable touch_wanted_;
  Classes classes_ GUARDED_BY(mutex_);
  boost::unordered_flat_set<std::uint32_t, PlaceHash, PlaceEqual> index_ GUARDED_BY(mutex_);
  std::uint64_t region_and_entry_bytes_ GUARDED_BY(mutex_) = 0;
  std::uint64_t coming_bytes_ GUARDED_BY(mutex_) = 0;  // of the region that is being touched
  SizeClass* growing_ GUARDED_BY(mutex_) = nullptr;    // whose region that is; it stays
  std::uint64_t pinned_bytes_ GUARDED_BY(mutex_) = 0;
  TierStats stats_ GUARDED_BY(mutex_);
  bool stopped_ GUARDED_BY(mutex_) = false;
  std::thread toucher_;  // last, so that it finds everything else made
};

// A slot between reserve and commit.
struct HostTier::Writing {
  Writing(std::shared_ptr<State> tier, Place taken, const BlockId& before)
      : state(std::move(tier)), place(taken), parent(before) {}
  Writing(const Writing&) = delete;
  Writing& operator=(const Writing&) = delete;
  ~Writing() {
    if (committed) {
      state->commit(place, parent);
    } else {
      state->abandon(place);
    }
  }
  std::shared_ptr<State> state;
  Place place;
  BlockId parent;
  bool committed = false;
};

HostTier::HostTier(HostTierOptions options) : state_(std::make_shared<State>(std::move(options))) {}

HostTier::~HostTier() { state_->stop(); }

void HostTier::prepare(std::uint64_t frame_bytes) { state_->prepare(frame_bytes); }

std::optional<HostTier::Slot> HostTier::reserve(const BlockId& id, const BlockId& parent, std::uint64_t frame_bytes) {
  const auto reserved = state_->reserve(id, parent, frame_bytes);
  if (!reserved) return std::nullopt;
  return Slot(std::make_shared<Writing>(state_, reserved->place, parent), reserved->bytes);
}

void HostTier::commit(Slot slot) {
  slot.writing_->committed = true;
  slot.writing_.reset();
}

void HostTier::touch(std::span<const BlockId> ids) { state_->touch(ids); }

Lease HostTier::hold(const BlockId& id) { return state_->lease(id, State::Use::no); }

bool HostTier::pin(const BlockId& id) { return state_->pin(id, true); }

bool HostTier::unpin(const BlockId& id) { return state_->pin(id, false); }

std::uint64_t HostTier::evict(std::uint64_t bytes) { return state_->evict(bytes); }

void HostTier::clear() { state_->clear(); }

std::vector<HostTier::Block> HostTier::list(std::size_t most) const { return state_->list(most); }

std::size_t HostTier::match(std::span<const BlockId> ids) { return state_->match(ids); }

bool HostTier::contains(const BlockId& id) { return state_->contains(id); }

Lease HostTier::get(const BlockId& /*namespace_id*/, const BlockId& id) { return state_->lease(id, State::Use::yes); }

bool HostTier::put(const BlockId& id, Bytes frame) {
  const auto opened = open_frame(frame);
  if (!opened || opened->header.id != id || opened->header.codec != Codec::raw) {
    state_->note_failure();
    return false;
  }
  if (contains(id)) return true;
  auto slot =
      reserve(id, opened->header.checkpoint ? opened->header.namespace_id : opened->header.parent, frame.size());
  if (!slot) return false;
  std::ranges::copy(frame, slot->bytes().begin());
  commit(std::move(*slot));
  return true;
}

bool HostTier::erase(const BlockId& id) { return state_->erase(id); }

TierStats HostTier::stats() const { return state_->stats(); }

}  // namespace caravan::kv
