// Blocks up from the tiers below the device, and down to them.
//
// Up: an admitted choice whose prompt goes on in a tier waits in `restoring` while others decode; its blocks are put
// into cells as they come, in order. It stops waiting as soon as computing would have been faster (I5). Down: a block
// is captured after it was sealed. While anybody streams, a step copies one block at the most in either direction (of
// small ones: 2 MiB).

#include <algorithm>
#include <numeric>
#include <span>
#include <utility>

#include "base/log.h"
#include "engine/engine.h"
#include "engine/engine_metrics.h"
#include "engine/kv_pool.h"
#include "engine/sequence.h"
#include "engine/snapshot.h"
#include "kv/block_format.h"

namespace caravan::engine {
namespace {

constexpr std::uint32_t blocks_a_step = 64;                  // while nobody streams
constexpr std::size_t bytes_a_step = std::size_t{2} << 20U;  // while somebody does: a quarter of a millisecond
constexpr double lag_share = 0.1;  // of the time that computing would take: what waiting may lose
constexpr double lag_seconds_least = 0.03;
constexpr double wait_seconds_max = 5;  // before any rate is known

}  // namespace

const kv::BlockId& Engine::namespace_of(const std::string& tenant) {
  const std::string& name = options_.tenant_isolation ? tenant : namespace_.tenant;
  const auto [found, is_new] = namespace_ids_.try_emplace(name);
  if (is_new) {
    kv::Namespace whole = namespace_;
    whole.tenant = name;
    found->second = whole.id();
  }
  return found->second;
}

void Engine::extend_chain(Sequence& sequence, std::uint32_t blocks) {
  const std::uint32_t each = options_.block_tokens;
  while (sequence.chain.size() < blocks) {
    const kv::BlockId& parent = sequence.chain.empty() ? namespace_of(sequence.tenant) : sequence.chain.back();
    const std::span<const Token> tokens = std::span(sequence.tokens).subspan(sequence.chain.size() * each, each);
    sequence.chain.push_back(kv::block_id(parent, tokens));
  }
}

bool Engine::make_room(std::uint32_t cells) {
  while (pool_->ledger().free() < cells && evict(EvictFor::cells)) continue;
  return pool_->ledger().free() >= cells;
}

bool Engine::anyone_decodes() const {
  return std::ranges::any_of(sequences_, [](const Sequence& each) { return each.state == SequenceState::decoding; });
}

std::uint32_t Engine::blocks_this_step() const {
  if (!anyone_decodes()) return blocks_a_step;
  const std::size_t bytes = snapshot_->has_blocks() ? snapshot_->block_bytes() : snapshot_->checkpoint_bytes();
  return static_cast<std::uint32_t>(std::clamp<std::size_t>(bytes_a_step / bytes, 1, blocks_a_step));
}

// ---- up ----

// True: the sequence waits for blocks that may come.
bool Engine::begin_restore(Sequence& sequence) {
  if (cache_ == nullptr || !sequence.choice->job->request.cache_prompt) return false;
  const std::uint32_t each = options_.block_tokens;
  const std::uint32_t held = pool_->length(sequence.id);
  // One token must be evaluated for its logits.
  const auto usable = static_cast<std::uint32_t>(sequence.tokens.size() - 1) / each;
  const std::uint32_t reached = held / each;
  if (reached > 0) cache_->used(std::span(sequence.chain).first(std::min<std::size_t>(reached, sequence.chain.size())));
  if (usable <= reached) return false;
  extend_chain(sequence, usable);
  const bool anew =
      pool_->cut() != Cut::anywhere || snapshot_->captures_whole();  // what is held cannot be gone on from
  kv::FetchRequest request{
      .namespace_id = namespace_of(sequence.tenant),
      .chain = {sequence.chain.begin(), sequence.chain.begin() + usable},
      .first = anew ? 0 : reached,
      .least = reached + 1,
      .blocks = snapshot_->has_blocks(),
      .checkpoints = snapshot_->has_checkpoints(),
      .block_bytes = snapshot_->has_blocks() ? snapshot_->block_bytes() : snapshot_->checkpoint_bytes(),
      .compute_seconds_per_block = prefill_rate_ > 0 ? each / prefill_rate_ : 0,
      .wake = [this] { mailbox_.put(Wake{}); }};
  sequence.fetch = cache_->fetch(std::move(request));
  if (!sequence.fetch) return false;
  sequence.restore_begun = Clock::now();
  sequence.state = SequenceState::restoring;
  return true;
}

bool Engine::restore() {
  if (cache_ == nullptr) return false;
  std::uint32_t budget = blocks_this_step();
  bool progress = false;
  for (Sequence* sequence : running()) {
    if (sequence->state != SequenceState::restoring) continue;
    while (budget > 0 && restore_next(*sequence, budget)) progress = true;
    if (sequence->state != SequenceState::restoring) {
      progress = true;
    } else if (lags(*sequence)) {
      log::debug("restore: sequence {} computes what has not come after {:.0f} ms", sequence->id,
                 milliseconds(Clock::now() - sequence->restore_begun));
      ++totals_.restores_failed;
      metrics_->restores_failed.Increment();
      end_restore(*sequence);
      progress = true;
    }
  }
  return progress;
}

// One piece further; false when there is none, or the restore is over.
bool Engine::restore_next(Sequence& sequence, std::uint32_t& budget) {
  std::optional<kv::Fetch::Piece> piece = sequence.fetch->take();
  if (!piece) {
    if (!sequence.fetch->finished()) return false;
    if (!sequence.pieces.empty()) restore_together(sequence);
    end_restore(sequence);
    return false;
  }
  --budget;
  if (snapshot_->captures_whole() && !piece->checkpoint && snapshot_->has_blocks()) {
    sequence.pieces.push_back(std::move(*piece));
    return true;
  }
  const bool fine =
      (sequence.pieces.empty() || restore_together(sequence)) && restore_piece(sequence, std::move(*piece));
  if (!fine) {
    ++totals_.restores_failed;
    metrics_->restores_failed.Increment();
    end_restore(sequence);
  }
  return fine;
}

namespace {

// The payload of a frame that holds these very tokens; empty when it does not (I2).
Snapshot::Bytes payload_of(const kv::Lease& lease, std::span<const Token> tokens) {
  const auto header = kv::peek_frame(lease.frame());
  if (!header || !std::ranges::equal(header->tokens, tokens)) return {};
  return lease.frame().subspan(kv::header_bytes(tokens.size()));
}

}  // namespace

bool Engine::restore_piece(Sequence& sequence, kv::Fetch::Piece piece) {
  const std::uint32_t each = options_.block_tokens;
  const std::uint32_t begin = piece.block * each;
  const std::uint32_t end = begin + each;
  const kv::BlockId& block = sequence.chain[piece.block];
  const Snapshot::Bytes payload = payload_of(piece.lease, std::span(sequence.tokens).subspan(begin, each));
  RestoreAnswer answer = RestoreAnswer::no_match;
  if (!payload.empty() && !piece.checkpoint) {
    // What the device shared beyond the block's beginning goes, in favour of a longer prefix from the tier.
    if (pool_->length(sequence.id) > begin) pool_->trim(sequence.id, pool_->cut() == Cut::anywhere ? begin : 0);
    if (pool_->length(sequence.id) != begin || !make_room(each)) return false;
    answer = snapshot_->restore_blocks(sequence.id, piece.block, std::span(&payload, 1));
  } else if (!payload.empty()) {
    if (!snapshot_->has_blocks()) pool_->clear(sequence.id);
    if (pool_->length(sequence.id) != (snapshot_->has_blocks() ? end : 0)) return false;
    answer = snapshot_->restore_checkpoint(sequence.id, end, payload);
  }
  if (answer == RestoreAnswer::no_match) cache_->reject(piece.checkpoint ? kv::state_id(block) : block);
  if (answer == RestoreAnswer::failed) {
    ++totals_.recoveries;
    metrics_->recoveries.Increment();
  }
  if (answer != RestoreAnswer::restored) return false;
  ++totals_.blocks_restored;
  metrics_->blocks_restored.Increment();
  const std::uint32_t tokens = !piece.checkpoint ? each : snapshot_->has_blocks() ? 0 : end;
  sequence.restored[static_cast<std::size_t>(piece.lease.tier())] += tokens;
  sequence.captured = piece.block + 1;
  if (piece.checkpoint) sequence.checkpoint_at = end;
  return true;
}

// Between streams: all blocks that came, in one go.
bool Engine::restore_together(Sequence& sequence) {
  const std::vector<kv::Fetch::Piece> pieces = std::exchange(sequence.pieces, {});
  const std::uint32_t each = options_.block_tokens;
  std::vector<Snapshot::Bytes> payloads;
  for (const kv::Fetch::Piece& piece : pieces) {
    const auto tokens = std::span(sequence.tokens).subspan(piece.block * each, each);
    payloads.push_back(payload_of(piece.lease, tokens));
    if (payloads.back().empty()) {
      cache_->reject(sequence.chain[piece.block]);
      return false;
    }
  }
  pool_->clear(sequence.id);
  sequence.restored = {};
  if (snapshot_->restore_blocks(sequence.id, 0, payloads) != RestoreAnswer::restored) return false;
  for (const kv::Fetch::Piece& piece : pieces) sequence.restored[static_cast<std::size_t>(piece.lease.tier())] += each;
  totals_.blocks_restored += pieces.size();
  metrics_->blocks_restored.Increment(static_cast<double>(pieces.size()));
  sequence.captured = static_cast<std::uint32_t>(pieces.size());
  return true;
}

// Whether computing all that was wanted would by now be done further than what has come.
bool Engine::lags(const Sequence& sequence) const {
  const double waited = seconds(Clock::now() - sequence.restore_begun);
  if (prefill_rate_ <= 0) return waited > wait_seconds_max;
  const std::uint32_t came = std::accumulate(sequence.restored.begin(), sequence.restored.end(), 0U) +
                             static_cast<std::uint32_t>(sequence.pieces.size()) * options_.block_tokens;
  const auto wanted = static_cast<double>(sequence.tokens.size());
  return waited > came / prefill_rate_ + std::max(lag_seconds_least, lag_share * wanted / prefill_rate_);
}

void Engine::end_restore(Sequence& sequence) {
  sequence.fetch->stop();
  sequence.fetch.reset();
  sequence.pieces.clear();
  // A hybrid's blocks without its state are nothing.
  if (pool_->length(sequence.id) > 0 && !pool_->reconcile(sequence.id)) {
    sequence.restored = {};
    sequence.captured = 0;
  }
  const std::uint32_t held = pool_->length(sequence.id);
  if (held == 0) sequence.restored = {};
  sequence.cached_tokens = held;
  sequence.state = SequenceState::prefilling;
  metrics_->restore.Observe(seconds(Clock::now() - sequence.restore_begun));
  log::debug("restore: sequence {} goes on from {} of {} tokens", sequence.id, held, sequence.tokens.size());
  open_account(sequence, sequence.match);
}

// ---- down ----

// Where a state that cannot be cut is to be captured next: at steps, and at the last block of the prompt.
std::uint32_t Engine::next_checkpoint(const Sequence& sequence) const {
  if (cache_ == nullptr || !snapshot_->has_checkpoints()) return 0;
  const std::uint32_t held = pool_->length(sequence.id);
  const std::uint32_t step = snapshot_->checkpoint_step();
  const auto last =
      static_cast<std::uint32_t>(sequence.tokens.size() - 1) / options_.block_tokens * options_.block_tokens;
  const std::uint32_t next = (held / step + 1) * step;
  return last > held ? std::min(next, last) : next;
}

bool Engine::capture() {
  if (cache_ == nullptr) return false;
  if (const TimePoint now = Clock::now(); now - ticked_ > std::chrono::milliseconds(500)) {
    ticked_ = now;
    cache_->tick(now);
  }
  const bool streaming = anyone_decodes();
  std::uint32_t budget = blocks_this_step();
  bool captured = false;
  for (Sequence& sequence : sequences_) {
    if (sequence.state == SequenceState::idle || sequence.state == SequenceState::restoring) continue;
    if (sequence.choice && !sequence.choice->job->request.cache_prompt) continue;
    if (snapshot_->has_checkpoints()) capture_checkpoint(sequence);
    // Between streams every capture copies the whole sequence, so it waits until nobody is kept waiting by it.
    if (budget == 0 || (streaming && snapshot_->captures_whole())) continue;
    const std::uint32_t done = capture_backlog(sequence, budget);
    budget -= done;
    captured = captured || done > 0;
  }
  return captured;
}

// Offers at most so many sealed blocks, the first first; how many were copied.
std::uint32_t Engine::capture_backlog(Sequence& sequence, std::uint32_t most) {
  if (cache_ == nullptr || !snapshot_->has_blocks() || sequence.state == SequenceState::restoring) return 0;
  if (sequence.choice && !sequence.choice->job->request.cache_prompt) return 0;
  const std::uint32_t each = options_.block_tokens;
  const std::uint32_t sealed = std::min(pool_->length(sequence.id), sequence.exact_below.value_or(~0U)) / each;
  if (sealed <= sequence.captured) return 0;
  extend_chain(sequence, sealed);
  struct Begun {
    std::uint32_t block = 0;
    kv::HostTier::Slot slot;
  };
  std::vector<Begun> begun;
  const std::uint64_t bytes = kv::frame_bytes(each, snapshot_->block_bytes());
  while (sequence.captured < sealed && begun.size() < most) {
    const std::uint32_t block = sequence.captured++;
    if (!cache_->wants(sequence.chain[block])) continue;
    const kv::BlockId& parent = block == 0 ? namespace_of(sequence.tenant) : sequence.chain[block - 1];
    auto slot = cache_->reserve(sequence.chain[block], parent, bytes);
    if (!slot) continue;  // no room: not kept
    begun.push_back({.block = block, .slot = std::move(*slot)});
  }
  std::size_t at = 0;
  while (at < begun.size()) {  // runs of blocks that follow each other
    std::vector<std::span<std::byte>> payloads;
    const std::uint32_t first = begun[at].block;
    std::size_t end = at;
    for (; end < begun.size() && begun[end].block == first + (end - at); ++end) {
      payloads.push_back(begun[end].slot.bytes().subspan(kv::header_bytes(each)));
    }
    if (!snapshot_->capture_blocks(sequence.id, first, payloads)) return static_cast<std::uint32_t>(begun.size());
    for (; at < end; ++at) {
      const std::uint32_t block = begun[at].block;
      const auto tokens = sequence.tokens.begin() + block * each;
      cache_->commit(std::move(begun[at].slot),
                     {.checkpoint = false,
                      .raw_bytes = snapshot_->block_bytes(),
                      .stored_bytes = snapshot_->block_bytes(),
                      .namespace_id = namespace_of(sequence.tenant),
                      .parent = block == 0 ? namespace_of(sequence.tenant) : sequence.chain[block - 1],
                      .id = sequence.chain[block],
                      .tokens = {tokens, tokens + each}});
      ++totals_.blocks_captured;
      metrics_->blocks_captured.Increment();
    }
  }
  return static_cast<std::uint32_t>(begun.size());
}

// The state moves on with the next token, so it is captured now or not at all.
void Engine::capture_checkpoint(Sequence& sequence) {
  const std::uint32_t each = options_.block_tokens;
  const std::uint32_t held = pool_->length(sequence.id);
  if (held == 0 || held % each != 0 || held == sequence.checkpoint_at || !sequence.choice) return;
  const auto last = static_cast<std::uint32_t>(sequence.prompt_tokens - 1) / each * each;
  if (held % snapshot_->checkpoint_step() != 0 && held != last) return;
  sequence.checkpoint_at = held;
  extend_chain(sequence, held / each);
  const std::uint32_t block = held / each - 1;
  const kv::BlockId id = kv::state_id(sequence.chain[block]);
  if (!cache_->wants(id)) return;
  auto slot = cache_->reserve(id, namespace_of(sequence.tenant), kv::frame_bytes(each, snapshot_->checkpoint_bytes()));
  if (!slot || !snapshot_->capture_checkpoint(sequence.id, slot->bytes().subspan(kv::header_bytes(each)))) return;
  const auto tokens = sequence.tokens.begin() + block * each;
  cache_->commit(std::move(*slot), {.checkpoint = true,
                                    .raw_bytes = snapshot_->checkpoint_bytes(),
                                    .stored_bytes = snapshot_->checkpoint_bytes(),
                                    .namespace_id = namespace_of(sequence.tenant),
                                    .parent = block == 0 ? namespace_of(sequence.tenant) : sequence.chain[block - 1],
                                    .id = id,
                                    .tokens = {tokens, tokens + each}});
  ++totals_.blocks_captured;
  metrics_->blocks_captured.Increment();
}

}  // namespace caravan::engine
