#include "kv/cache.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "kv/block_format.h"

namespace caravan::kv {
namespace {

constexpr std::size_t reads_max = 256;    // fetches that wait for the reader; more are computed
constexpr std::size_t writes_max = 1024;  // chains that wait for the writer; more stay in the host tier only

}  // namespace

Cache::Cache(std::unique_ptr<HostTier> host, std::unique_ptr<Tier> store, Options options)
    : host_(std::move(host)),
      store_(std::move(store)),
      options_(options),
      book_(options.sessions),
      reader_(reads_max),
      writer_(writes_max) {}

Cache::~Cache() = default;

// ---- capture ----

bool Cache::wants(const BlockId& id) { return host_ && !host_->contains(id); }

std::optional<HostTier::Slot> Cache::reserve(const BlockId& id, const BlockId& parent, std::uint64_t bytes) {
  if (!host_) return std::nullopt;
  return host_->reserve(id, parent, bytes);
}

void Cache::commit(HostTier::Slot slot, const FrameHeader& header) {
  seal_frame(slot.bytes(), header);
  host_->commit(std::move(slot));
}

// ---- fetch ----

std::vector<Cache::Wanted> Cache::plan(const FetchRequest& request, const std::function<bool(const BlockId&)>& has) {
  const std::vector<BlockId>& chain = request.chain;
  std::size_t reached = request.blocks ? request.first : chain.size();
  while (reached < chain.size() && has(chain[reached])) ++reached;
  std::optional<BlockId> state;
  if (request.checkpoints) {
    // The newest state that the blocks reach; without it they are of no use.
    for (; reached >= std::max(request.least, 1U); --reached) {
      const BlockId id = state_id(chain[reached - 1]);
      if (!has(id)) continue;
      state = id;
      break;
    }
    if (!state) return {};
  }
  if (reached < request.least) return {};
  std::vector<Wanted> wanted;
  if (request.blocks) {
    for (std::size_t i = request.first; i < reached; ++i) {
      wanted.push_back({.block = static_cast<std::uint32_t>(i), .checkpoint = false, .id = chain[i]});
    }
  }
  if (state) wanted.push_back({.block = static_cast<std::uint32_t>(reached - 1), .checkpoint = true, .id = *state});
  return wanted;
}

std::shared_ptr<Fetch> Cache::fetch(FetchRequest request) {
  if (request.chain.size() < request.least || request.first >= request.chain.size()) return nullptr;
  const auto fetch = std::make_shared<Fetch>(request.wake);
  // The caller's handle: what it has let go of wakes nobody, for then there may be nobody.
  std::shared_ptr<Fetch> handle(fetch.get(), [fetch](Fetch* each) { each->stop(); });
  std::uint32_t begun = 0;
  std::vector<Wanted> wanted;
  if (host_) wanted = plan(request, [&](const BlockId& id) { return host_->contains(id); });
  const bool whole = !wanted.empty() && wanted.back().block + 1 == request.chain.size();
  // Blocks in front are the same whatever a slower tier may have behind them; a checkpoint is not.
  const bool take_now = !store_ || whole || !request.checkpoints;
  if (take_now) {
    for (const Wanted& each : wanted) {
      Lease lease = host_->get(request.namespace_id, each.id);
      if (!lease) break;
      fetch->put({.block = each.block, .checkpoint = each.checkpoint, .lease = std::move(lease)});
      ++begun;
    }
  }
  if (begun > 0) {
    std::vector<BlockId> ids(request.chain.begin(), request.chain.begin() + wanted[begun - 1].block + 1);
    down(std::move(ids));  // a second use
  }
  if (!store_ || (whole && begun == wanted.size())) {
    fetch->close();
    if (begun == 0) return nullptr;
    ++fetches_;
    return handle;
  }
  // Done, refused or dropped at the end: however the task goes, the fetch is closed with it.
  std::shared_ptr<Fetch> open(fetch.get(), [fetch](Fetch* each) { each->close(); });
  const bool posted = reader_.post(
      [this, request = std::move(request), open = std::move(open), begun] { fetch_slowly(request, *open, begun); });
  if (!posted && begun == 0) return nullptr;
  ++fetches_;
  return handle;
}

// On the reader: what the host does not have. `begun` pieces were put already.
void Cache::fetch_slowly(const FetchRequest& request, Fetch& fetch, std::uint32_t begun) {
  const auto in_host = [&](const BlockId& id) { return host_ && host_->contains(id); };
  const std::vector<Wanted> near = plan(request, in_host);
  std::vector<Wanted> wanted = plan(request, [&](const BlockId& id) { return in_host(id) || store_->contains(id); });
  const auto far =
      static_cast<std::uint64_t>(std::ranges::count_if(wanted, [&](const Wanted& each) { return !in_host(each.id); }));
  if (far > 0) {
    const auto reached = [&](const std::vector<Wanted>& pieces) {
      return pieces.empty() ? request.first : pieces.back().block + 1;
    };
    const double blocks = static_cast<double>(reached(wanted)) - reached(near);
    const Lock lock(mutex_);
    if (!store_rate_.worth(far * request.block_bytes, blocks * request.compute_seconds_per_block, Clock::now())) {
      ++priced_out_;
      wanted = near;
    }
  }
  for (std::size_t i = begun; i < wanted.size() && !fetch.stopped(); ++i) {
    Lease lease = read(request.namespace_id, wanted[i].id, request.block_bytes);
    if (!lease) return;
    fetch.put({.block = wanted[i].block, .checkpoint = wanted[i].checkpoint, .lease = std::move(lease)});
  }
}

// On the reader. What several fetches want at once is read once: they share a lease as long as one of them holds it.
Lease Cache::read(const BlockId& namespace_id, const BlockId& id, std::uint64_t bytes) {
  if (Lease lease = host_ ? host_->get(namespace_id, id) : Lease()) return lease;
  std::shared_ptr<const Lease> shared = shared_[id].lock();
  if (!shared) {
    std::erase_if(shared_, [](const auto& each) { return each.second.expired(); });
    const TimePoint started = Clock::now();
    Lease lease = store_->get(namespace_id, id);
    const TimePoint ended = Clock::now();
    const double took = seconds(ended - started);
    {
      const Lock lock(mutex_);
      // A miss that came fast says nothing of the rate; one that kept us waiting does.
      if (lease || took > store_rate_.seconds(bytes).value_or(0)) store_rate_.note(bytes, took, ended);
    }
    if (!lease) return {};
    shared = std::make_shared<const Lease>(std::move(lease));
    shared_[id] = shared;
  }
  return {shared->tier(), shared->frame(), shared};
}

void Cache::reject(const BlockId& id) {
  ++rejected_;
  if (host_) host_->erase(id);
  if (!store_) return;
  reader_.post([this, id] {
    shared_.erase(id);
    store_->erase(id);
  });
}

void Cache::used(std::span<const BlockId> ids) {
  if (host_) host_->touch(ids);
}

// ---- down and up ----

std::vector<BlockId> Cache::frames_of(std::span<const BlockId> chain) {
  std::vector<BlockId> ids;
  ids.reserve(2 * chain.size());
  for (const BlockId& id : chain) {
    ids.push_back(id);
    ids.push_back(state_id(id));
  }
  return ids;
}

void Cache::down(std::vector<BlockId> chain) {
  if (!store_ || !host_ || chain.empty()) return;
  const bool posted = writer_.post([this, chain = std::move(chain)] {
    for (const BlockId& id : frames_of(chain)) {
      if (!host_->contains(id) || store_->contains(id)) continue;
      const Lease lease = host_->hold(id);
      if (lease && !store_->put(id, lease.frame())) return;  // full or degraded: the tier says so itself
    }
  });
  if (!posted) ++down_dropped_;
}

// A block at a time, so that fetches get in between.
void Cache::up(const BlockId& namespace_id, std::vector<BlockId> frames) {
  if (!store_ || !host_ || frames.empty()) return;
  reader_.post([this, namespace_id, frames = std::move(frames)]() mutable {
    const auto missing = std::ranges::find_if(frames, [&](const BlockId& id) { return !host_->contains(id); });
    if (missing == frames.end()) return;
    const Lease lease = store_->get(namespace_id, *missing);
    if (lease && !host_->put(*missing, lease.frame())) return;  // no room for it, nor for what follows
    if (lease) ++prefetched_;
    frames.erase(frames.begin(), missing + 1);
    up(namespace_id, std::move(frames));
  });
}

// ---- sessions ----

SessionId Cache::begin_turn(std::string_view tenant, std::string_view session, std::span<const BlockId> prompt) {
  const Lock lock(mutex_);
  return book_.begin(tenant, session, prompt, Clock::now());
}

void Cache::end_turn(SessionId session, const BlockId& namespace_id, std::span<const BlockId> chain) {
  const Lock lock(mutex_);
  book_.end(session, namespace_id, chain, Clock::now());
}

std::vector<SessionView> Cache::sessions(std::size_t most) {
  const Lock lock(mutex_);
  return book_.list(Clock::now(), most);
}

void Cache::tick(TimePoint now) {
  std::vector<SessionBook::Chain> idle;
  std::vector<SessionBook::Chain> expected;
  {
    const Lock lock(mutex_);
    idle = book_.take_idle(now);
    expected = book_.take_expected(now);
  }
  for (SessionBook::Chain& chain : idle) down(std::move(chain.blocks));
  if (!options_.prefetch) return;
  for (const SessionBook::Chain& chain : expected) up(chain.namespace_id, frames_of(chain.blocks));
}

void Cache::drain(TimePoint deadline) {
  std::vector<SessionBook::Chain> idle;
  {
    const Lock lock(mutex_);
    idle = book_.take_idle(TimePoint::max());
  }
  for (SessionBook::Chain& chain : idle) down(std::move(chain.blocks));
  if (!writer_.wait_idle(deadline)) log::warn("kv: not all blocks reached the store before the end");
}

Cache::Stats Cache::stats() {
  Stats stats;
  if (host_) stats.host = host_->stats();
  if (store_) stats.store = store_->stats();
  stats.fetches = fetches_;
  stats.fetches_priced_out = priced_out_;
  stats.rejected = rejected_;
  stats.prefetched_blocks = prefetched_;
  stats.down_dropped = down_dropped_;
  const Lock lock(mutex_);
  stats.forecasts_met = book_.forecasts().met;
  stats.forecasts_missed = book_.forecasts().missed;
  stats.sessions = book_.size();
  stats.session_bytes = book_.bytes();
  return stats;
}

}  // namespace caravan::kv
