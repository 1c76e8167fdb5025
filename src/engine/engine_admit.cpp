// Waiting choices onto sequences, each with the longest beginning of its tokens that is in memory.

#include <algorithm>

#include "engine/engine.h"
#include "engine/engine_metrics.h"
#include "engine/kv_pool.h"
#include "engine/prefix.h"
#include "engine/sequence.h"

namespace caravan::engine {
namespace {

constexpr std::uint32_t room_to_generate = 32;  // cells a choice must find free beyond its prompt to be admitted
constexpr std::uint32_t fork_noted_from = 16;   // shorter common beginnings (a BOS, a role) are no trunk
constexpr std::size_t quote_from = 64;          // so much must have missed for a look behind the divergence
constexpr std::size_t quote_tokens_max = 8192;  // the look costs a few microseconds for a hundred tokens
constexpr std::size_t quote_sequences_max = 4;

}  // namespace

void Engine::admit() {
  while (!waiting_.empty() && running_count() < options_.parallel) {
    const Choice& next = *waiting_.front();
    const Match match = find_match(next);
    if (!fits(next, match)) return;  // it stays first in line; running ones will finish or let go
    const std::optional<std::uint32_t> id = sequence_for(match);
    if (!id) return;
    place(waiting_.pop(), match, *id);
  }
}

Match Engine::find_match(const Choice& choice) const {
  Match best;
  const Request& request = choice.job->request;
  if (!options_.kv_cache || !request.cache_prompt) return best;
  for (const Sequence& other : sequences_) {
    if (other.state == SequenceState::idle) continue;
    if (options_.tenant_isolation && other.tenant != request.tenant) continue;
    if (other.choice && !other.choice->job->request.cache_prompt) continue;
    const std::uint32_t held = pool_->length(other.id);
    std::uint32_t common = common_prefix(choice.tokens, other.tokens);
    if (other.exact_below) common = std::min(common, *other.exact_below);
    if (common > best.common || (common > 0 && common == best.common && !best.whole)) {
      best.common = common;
      best.closest = other.id;
      best.whole = common == other.tokens.size();
    }
    // One token must be evaluated for its logits, cached or not.
    std::uint32_t length = std::min(common, static_cast<std::uint32_t>(choice.tokens.size() - 1));
    bool ready = true;
    if (length <= held) {
      // A source that cannot be cut is no use once it is past the point; until then it can stop there.
      length = pool_->shareable(other.id, length);
    } else {
      ready = false;
    }
    const bool better = length > best.length || (length > 0 && length == best.length && ready && !best.ready);
    if (!better) continue;
    best.length = length;
    best.sequence = other.id;
    best.ready = ready;
  }
  return best;
}

// Whether the cells that the choice will need are free or held by residents only, counting what is promised to others.
bool Engine::fits(const Choice& choice, const Match& match) const {
  std::vector<std::pair<std::uint32_t, std::uint32_t>> live;
  std::uint32_t promised = 0;
  for (const Sequence& sequence : sequences_) {
    if (!sequence.choice) continue;
    const std::uint32_t held = pool_->length(sequence.id);
    live.emplace_back(sequence.id, held);
    const std::uint32_t from = sequence.source ? sequence.source->length : held;
    promised += static_cast<std::uint32_t>(sequence.tokens.size()) -
                std::min<std::uint32_t>(from, static_cast<std::uint32_t>(sequence.tokens.size()));
  }
  if (live.empty()) return true;       // alone, everything that submit() took fits
  if (!pool_->unified()) return true;  // its stream holds a whole context
  if (match.length > 0 && match.ready) live.emplace_back(match.sequence, match.length);
  const std::uint32_t used = pool_->ledger().distinct(live) + promised;
  const auto needed = static_cast<std::uint32_t>(choice.tokens.size()) - match.length + room_to_generate;
  return used + needed <= pool_->ledger().total();
}

// The sequence that the choice will run on: a resident that it continues, a free one, or the least valuable resident's.
std::optional<std::uint32_t> Engine::sequence_for(const Match& match) {
  const bool from_resident =
      match.length > 0 && match.ready && sequences_[match.sequence].state == SequenceState::resident;
  const bool whole = from_resident && match.length == pool_->length(match.sequence);
  // A state that cannot be cut is worth keeping where it is: the next edit of this prompt may start from it again.
  if (whole && pool_->cut() != Cut::at_end) return match.sequence;
  const auto idle = [&] { return std::ranges::find(sequences_, SequenceState::idle, &Sequence::state); };
  if (idle() == sequences_.end()) {
    const std::optional<std::uint32_t> except = from_resident ? std::optional(match.sequence) : std::nullopt;
    if (!evict(EvictFor::sequence_id, except)) {
      if (!from_resident) return std::nullopt;
      // The only resident left is the source itself: go on in its place.
      if (!pool_->trim(match.sequence, match.length)) sequences_[match.sequence].tokens.clear();
      return match.sequence;
    }
  }
  return idle()->id;
}

void Engine::place(std::unique_ptr<Choice> choice, const Match& match, std::uint32_t id) {
  Sequence& sequence = sequences_[id];
  const bool continues = sequence.state == SequenceState::resident;
  const std::shared_ptr<Job>& job = choice->job;
  if (continues) {
    ++sequence.uses;
  } else {
    sequence.forks.clear();
    sequence.uses = 0;
    sequence.quotes = false;
  }
  sequence.exact_below.reset();
  sequence.source.reset();
  if (!continues) {
    sequence.chain.clear();
    sequence.captured = sequence.checkpoint_at = 0;
  }
  sequence.restored = {};
  sequence.restore_begun = {};
  sequence.tokens = std::move(choice->tokens);
  sequence.tenant = job->request.tenant;
  sequence.session = job->request.session;
  sequence.choice = std::move(choice);
  sequence.admission = ++admissions_;
  sequence.prompt_tokens = job->account.prompt_tokens;
  sequence.cached_tokens = 0;
  sequence.last_used = tick_;
  sequence.state = SequenceState::prefilling;

  const TimePoint now = Clock::now();
  if (!job->admitted) {
    job->admitted = true;
    --waiting_count_;
    job->admitted_at = now;
    job->account.queue = now - job->request.arrived;
    metrics_->queue.Observe(seconds(job->account.queue));
  }
  if (cache_ != nullptr && job->session == 0 && job->request.cache_prompt) {
    extend_chain(sequence, sequence.prompt_tokens / options_.block_tokens);
    job->session = cache_->begin_turn(job->request.tenant, job->request.session, sequence.chain);
  }
  if (continues) {
    sequence.cached_tokens = pool_->length(id);
  } else if (match.length > 0 && match.ready) {
    take_prefix(sequence, match.sequence, match.length);
  } else if (match.length > 0) {
    sequence.state = SequenceState::waiting_for_prefix;
    sequence.source = Sequence::Source{
        .sequence = match.sequence, .admission = sequences_[match.sequence].admission, .length = match.length};
    return;
  }
  sequence.match = match;
  if (!begin_restore(sequence)) open_account(sequence, match);
}

void Engine::take_prefix(Sequence& sequence, std::uint32_t source_id, std::uint32_t length) {
  Sequence& source = sequences_[source_id];
  if (!pool_->share(source_id, sequence.id, length)) {
    ++totals_.recoveries;
    metrics_->recoveries.Increment();
    return;  // the sequence is empty: its prompt is computed
  }
  sequence.cached_tokens = length;
  const std::uint32_t blocks = length / options_.block_tokens;
  sequence.captured = std::min(source.captured, blocks);
  if (sequence.chain.size() < std::min<std::size_t>(source.chain.size(), blocks)) {
    sequence.chain.assign(source.chain.begin(),
                          source.chain.begin() + std::min<std::ptrdiff_t>(std::ssize(source.chain), blocks));
  }
  if (length < fork_noted_from) return;
  note_fork(source.forks, length, tick_);
  // Whoever holds the trunk knows what it is worth. What goes on where another ended is the same conversation.
  for (const Fork& fork : source.forks) {
    if (fork.at <= length) sequence.forks.push_back(fork);
  }
  const bool continues = source.tokens.size() - length < options_.block_tokens;
  if (continues) sequence.uses = source.uses + 1;
}

// The first admission of a request sets what its client is told.
void Engine::open_account(Sequence& sequence, const Match& match) {
  Job& job = *sequence.choice->job;
  if (sequence.choice->index != 0 || job.prefill_at != TimePoint{}) return;
  job.prefill_at = Clock::now();
  Account& account = job.account;
  account.match = job.prefill_at - job.admitted_at;
  account.restore = sequence.restore_begun == TimePoint{} ? Duration{} : job.prefill_at - sequence.restore_begun;
  account.match -= account.restore;
  account.cached = sequence.restored;
  account.cached[static_cast<std::size_t>(kv::TierKind::device)] = sequence.cached_tokens - account.cached_total();
  account.computed = account.prompt_tokens - sequence.cached_tokens;
  account.miss_at = sequence.cached_tokens;
  if (!options_.kv_cache || !job.request.cache_prompt) {
    account.miss = MissReason::disabled;
  } else if (account.computed <= 1) {
    account.miss = MissReason::none;
  } else if (match.common > sequence.cached_tokens + 1) {
    account.miss = MissReason::unsupported;
  } else if (sequence.cached_tokens == 0 && match.common == 0) {
    account.miss = MissReason::cold;
  } else if (match.whole || match.common < sequence.cached_tokens) {
    account.miss = MissReason::fresh;
  } else {
    account.miss = MissReason::diverged;
  }
  if (account.miss == MissReason::diverged || account.miss == MissReason::cold) {
    const std::uint32_t quoted = quoted_tokens(sequence);
    if (account.miss == MissReason::diverged) account.shared_after = quoted;
    sequence.quotes = 2 * quoted > account.computed;
  }
  totals_.prompt_tokens_cached += sequence.cached_tokens;
  metrics_->prompt_tokens.Increment(account.prompt_tokens);
  for (std::size_t tier = 0; tier < kv::tier_kinds; ++tier) {
    metrics_->prompt_tokens_hit[tier]->Increment(account.cached[tier]);
  }
  metrics_->misses[static_cast<std::size_t>(account.miss)]->Increment();
}

// How many tokens behind the cached ones stand, elsewhere, in one of the sequences used last: what a changed front
// cost, or how much of a side request is a chat's text.
std::uint32_t Engine::quoted_tokens(const Sequence& sequence) const {
  if (sequence.tokens.size() - sequence.cached_tokens < quote_from) return 0;
  std::vector<const Sequence*> others;
  for (const Sequence& other : sequences_) {
    const bool visible = !options_.tenant_isolation || other.tenant == sequence.tenant;
    if (other.id != sequence.id && other.state != SequenceState::idle && visible) others.push_back(&other);
  }
  const auto looked_at = static_cast<std::ptrdiff_t>(std::min(others.size(), quote_sequences_max));
  std::ranges::partial_sort(others, others.begin() + looked_at, std::ranges::greater{}, &Sequence::last_used);
  const std::span<const Token> prompt(sequence.tokens);
  std::uint32_t most = 0;
  for (const Sequence* other : std::span(others).first(static_cast<std::size_t>(looked_at))) {
    most = std::max(most, shared_after(prompt.first(std::min(prompt.size(), quote_tokens_max)), sequence.cached_tokens,
                                       other->tokens));
  }
  return most;
}

// Who waited for another's prefix takes it once it is decoded. If the other is gone, they look again.
void Engine::branch() {
  for (Sequence* sequence : running()) {
    if (sequence->state != SequenceState::waiting_for_prefix) continue;
    const Sequence& source = sequences_[sequence->source->sequence];
    const std::uint32_t length = sequence->source->length;
    const bool there = source.state != SequenceState::idle && source.admission == sequence->source->admission;
    if (there && pool_->length(source.id) < length && source.choice) continue;  // not yet
    Match match{.sequence = source.id, .length = length, .common = length, .closest = source.id};
    match.whole = there && length == source.tokens.size();
    sequence->source.reset();
    sequence->state = SequenceState::prefilling;
    if (there && pool_->length(source.id) >= length && pool_->shareable(source.id, length) == length) {
      take_prefix(*sequence, source.id, length);
      sequence->match = match;
      if (!begin_restore(*sequence)) open_account(*sequence, match);
      continue;
    }
    // Gone or cut: another may have it. Its own tokens must not match itself.
    const SequenceState state = std::exchange(sequence->state, SequenceState::idle);
    std::swap(sequence->choice->tokens, sequence->tokens);
    match = find_match(*sequence->choice);
    std::swap(sequence->choice->tokens, sequence->tokens);
    sequence->state = state;
    if (match.length > 0 && match.ready) {
      take_prefix(*sequence, match.sequence, match.length);
    } else if (match.length > 0 && sequences_[match.sequence].admission < sequence->admission) {
      sequence->state = SequenceState::waiting_for_prefix;
      sequence->source = Sequence::Source{
          .sequence = match.sequence, .admission = sequences_[match.sequence].admission, .length = match.length};
      continue;
    }
    sequence->match = match;
    if (!begin_restore(*sequence)) open_account(*sequence, match);
  }
}

}  // namespace caravan::engine
