// What a step decodes, the room for it, and what to do when a decode fails.

#include <algorithm>

#include <llama.h>
#include <sys/resource.h>

#include "base/log.h"
#include "engine/engine.h"
#include "engine/engine_metrics.h"
#include "engine/kv_pool.h"
#include "engine/llama_batch.h"
#include "engine/sequence.h"

namespace caravan::engine {
namespace {

constexpr double chunk_seconds_max = 0.5;      // a prefill's share of a step while others stream
constexpr std::uint32_t failures_max = 3;      // decodes that may fail with a choice in the batch before it is given up
constexpr std::uint32_t rate_tokens_min = 32;  // smaller steps say little about the rate of a prefill

// What the process spends from its making to cost().
class StepMeter {
 public:
  StepMeter() : usage_(usage()), started_(Clock::now()) {}

  [[nodiscard]] TimePoint started() const { return started_; }
  [[nodiscard]] StepCost cost() const {
    const rusage now = usage();
    return {.took = Clock::now() - started_,
            .cpu = span(now.ru_utime) + span(now.ru_stime) - span(usage_.ru_utime) - span(usage_.ru_stime),
            .involuntary_switches = static_cast<std::uint64_t>(now.ru_nivcsw - usage_.ru_nivcsw)};
  }

 private:
  static rusage usage() {
    rusage found{};
    getrusage(RUSAGE_SELF, &found);
    return found;
  }
  static Duration span(const timeval& time) {
    return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
  }

  rusage usage_;
  TimePoint started_;
};

}  // namespace

std::vector<BatchCandidate> Engine::candidates() const {
  std::vector<const Sequence*> ordered;
  for (const Sequence& sequence : sequences_) {
    if (sequence.state == SequenceState::prefilling || sequence.state == SequenceState::decoding) {
      ordered.push_back(&sequence);
    }
  }
  std::ranges::sort(ordered, {}, &Sequence::admission);
  std::vector<BatchCandidate> found;
  for (const Sequence* sequence : ordered) {
    BatchCandidate& candidate = found.emplace_back();
    candidate.sequence = sequence->id;
    candidate.past = pool_->length(sequence->id);
    candidate.target = static_cast<std::uint32_t>(sequence->tokens.size());
    candidate.decoding = sequence->state == SequenceState::decoding && candidate.target == candidate.past + 1;
    if (pool_->cut() == Cut::anywhere) continue;
    if (!candidate.decoding) {
      if (const std::uint32_t at = next_checkpoint(*sequence); at > candidate.past) candidate.stop_at = at;
    }
    // Memory that cannot be cut later is shared at the very moment its owner stands where the other branches off.
    for (const Sequence& other : sequences_) {
      if (!other.source || other.source->sequence != sequence->id || other.source->admission != sequence->admission)
        continue;
      if (other.source->length > candidate.past) {
        candidate.stop_at = std::min(candidate.stop_at.value_or(other.source->length), other.source->length);
      }
    }
  }
  return found;
}

std::vector<BatchPart> Engine::plan() {
  if (!pool_) return {};
  const BatchLimits limits{
      .batch_tokens = options_.batch_tokens,
      .chunk_tokens = choose_chunk(prefill_rate_, chunk_seconds_max, options_.block_tokens, options_.ubatch_tokens),
      .block_tokens = options_.block_tokens};
  while (true) {
    std::vector<BatchPart> parts = plan_batch(candidates(), limits);
    std::uint32_t needed = 0;
    for (const BatchPart& part : parts) needed += part.count;
    if (!pool_->unified()) return parts;  // every stream has its own room
    if (make_room(needed) || !preempt_youngest()) return parts;
  }
}

// Lets go of the least valuable unit of a resident; false if there is none.
bool Engine::evict(EvictFor why, std::optional<std::uint32_t> except) {
  std::vector<ResidentView> residents;
  for (const Sequence& sequence : sequences_) {
    if (sequence.state != SequenceState::resident || sequence.id == except) continue;
    residents.push_back({.sequence = sequence.id,
                         .length = pool_->length(sequence.id),
                         .unshared_from = pool_->ledger().unshared_from(sequence.id),
                         .uses = sequence.uses,
                         .last_used = sequence.last_used,
                         .forks = sequence.forks,
                         .can_trim = pool_->cut() == Cut::anywhere,
                         .quotes = sequence.quotes});
  }
  const std::optional<Eviction> eviction = choose_eviction(residents, pool_->ledger().total(), why);
  if (!eviction) return false;
  Sequence& sequence = sequences_[eviction->sequence];
  log::debug("evict: sequence {} from {} to {} tokens", sequence.id, pool_->length(sequence.id), eviction->keep);
  capture_backlog(sequence, sequence.captured + pool_->length(sequence.id));
  pool_->trim(sequence.id, eviction->keep);
  sequence.captured = std::min(sequence.captured, pool_->length(sequence.id) / options_.block_tokens);
  sequence.tokens.resize(pool_->length(sequence.id));
  if (sequence.tokens.empty()) sequence.state = SequenceState::idle;
  ++totals_.evictions;
  metrics_->evictions.Increment();
  return true;
}

// The youngest running choice goes back to the line; the oldest never does, so somebody always finishes.
bool Engine::preempt_youngest() {
  std::vector<Sequence*> holders = running();
  std::erase_if(holders, [&](const Sequence* sequence) { return pool_->length(sequence->id) == 0; });
  if (holders.size() < 2) return false;
  Sequence& sequence = *holders.back();
  log::debug("preempt: sequence {} with {} tokens", sequence.id, pool_->length(sequence.id));
  capture_backlog(sequence, pool_->length(sequence.id));
  sequence.fetch.reset();
  sequence.pieces.clear();
  std::unique_ptr<Choice> choice = std::move(sequence.choice);
  choice->tokens = std::move(sequence.tokens);
  ++choice->job->account.preemptions;
  ++totals_.preemptions;
  metrics_->preemptions.Increment();
  pool_->clear(sequence.id);
  sequence.tokens.clear();
  sequence.source.reset();
  sequence.state = SequenceState::idle;
  const std::string tenant = choice->job->request.tenant;
  waiting_.push_front(tenant, std::move(choice));
  return true;
}

bool Engine::decode(const std::vector<BatchPart>& parts) {
  if (parts.empty()) return false;
  batch_->clear();
  std::uint32_t tokens = 0;
  bool prefill = false;
  for (const BatchPart& part : parts) {
    const Sequence& sequence = sequences_[part.sequence];
    for (std::uint32_t i = 0; i < part.count; ++i) {
      batch_->add(sequence.tokens[part.begin + i], part.begin + i, part.sequence, part.output && i + 1 == part.count);
    }
    tokens += part.count;
    prefill = prefill || sequence.state == SequenceState::prefilling;
  }

  const StepMeter meter;
  decode_started_ = meter.started().time_since_epoch().count();
  int answer = 1;
  if (!options_.inject_fault || !options_.inject_fault("decode")) {
    answer = llama_decode(pool_->context(), batch_->get());
    llama_synchronize(pool_->context());
  }
  decode_started_ = 0;
  const StepCost cost = meter.cost();
  const Duration took = cost.took;
  if (answer != 0) {
    recover(parts, answer);
    return false;
  }

  tick_ += tokens;
  ++totals_.steps;
  metrics_->steps.Increment();
  metrics_->step_seconds.Observe(seconds(took));
  (prefill ? metrics_->prompt_seconds : metrics_->generation_seconds).Increment(seconds(took));
  note_rate(parts, tokens, seconds(took));
  const std::uint32_t threads = compute_threads_.count();
  compute_threads_.observe(cost, Clock::now());
  if (const std::uint32_t count = compute_threads_.count(); count != threads) {
    llama_set_n_threads(pool_->context(), static_cast<std::int32_t>(std::min(count, options_.threads)),
                        static_cast<std::int32_t>(std::min(count, options_.threads_batch)));
    log::debug("compute threads: {}", count);
  }

  for (const BatchPart& part : parts) {
    Sequence& sequence = sequences_[part.sequence];
    if (sequence.state == SequenceState::prefilling) {
      totals_.prompt_tokens_computed += part.count;
      metrics_->prompt_tokens_computed.Increment(part.count);
    }
    if (!pool_->decoded(part.sequence, part.count)) restart(sequence);
  }
  return true;
}

// The rate of a prefill is what its tokens add to a step: beside decoding sequences their own time does not count, or a
// small chunk would look slow, be made smaller, and look slower.
void Engine::note_rate(const std::vector<BatchPart>& parts, std::uint32_t tokens, double took) {
  const auto decoding = static_cast<std::uint32_t>(std::ranges::count_if(
      parts, [&](const BatchPart& part) { return sequences_[part.sequence].state == SequenceState::decoding; }));
  const auto smooth = [](double& value, double now) { value = value == 0 ? now : 0.8 * value + 0.2 * now; };
  if (decoding == tokens) return smooth(decode_seconds_, took);
  if (tokens - decoding < rate_tokens_min) return;
  const double added = decoding == 0 ? took : std::max(took - decode_seconds_, 0.25 * took);
  smooth(prefill_rate_, (tokens - decoding) / std::max(1e-9, added));
}

// 1: no cells although the ledger has some; else libllama failed and may have kept a part of the batch (I8).
void Engine::recover(const std::vector<BatchPart>& parts, int answer) {
  log::warn("decode of {} sequences failed (code {}); trying again", parts.size(), answer);
  ++totals_.recoveries;
  metrics_->recoveries.Increment();
  for (const BatchPart& part : parts) {
    Sequence& sequence = sequences_[part.sequence];
    if (!pool_->reconcile(part.sequence)) restart(sequence);
    if (++sequence.choice->failures < failures_max * (answer == 1 ? 2 : 1)) continue;
    const std::shared_ptr<Job> job = sequence.choice->job;
    end(job, RequestFailed{{ErrorCode::internal, "the model could not evaluate this request; try again"}});
    pool_->clear(sequence.id);
    for (Sequence* each : running()) {
      if (each->choice->job == job) retire(*each);
    }
    waiting_.remove_if([&](const std::unique_ptr<Choice>& choice) { return choice->job == job; });
  }
  if (answer == 1 && !evict(EvictFor::cells)) preempt_youngest();
}

// The sequence's memory is gone; its tokens are decoded again from the first.
void Engine::restart(Sequence& sequence) {
  ++totals_.recoveries;
  metrics_->recoveries.Increment();
  sequence.exact_below.reset();
  sequence.captured = 0;
  sequence.state = SequenceState::prefilling;
}

}  // namespace caravan::engine
