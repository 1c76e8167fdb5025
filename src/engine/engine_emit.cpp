// From logits to what the client reads, and what becomes of a finished sequence.

#include <algorithm>
#include <utility>

#include <llama.h>

#include "base/check.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/engine_metrics.h"
#include "engine/kv_pool.h"
#include "engine/model.h"
#include "engine/prefix.h"
#include "engine/sequence.h"

namespace caravan::engine {

void Engine::emit(const std::vector<BatchPart>& parts) {
  std::int32_t index = -1;  // of a part's last token in the batch
  for (const BatchPart& part : parts) {
    index += static_cast<std::int32_t>(part.count);
    Sequence& sequence = sequences_[part.sequence];
    // Restarted sequences have lost what these logits belong to.
    if (!part.output || pool_->length(part.sequence) != part.begin + part.count) continue;
    const float* logits = llama_get_logits_ith(pool_->context(), index);
    CHECK(logits != nullptr);
    emit_token(sequence, logits);
  }
}

void Engine::emit_token(Sequence& sequence, const float* logits) {
  Choice& choice = *sequence.choice;
  const std::shared_ptr<Job> job = choice.job;
  const Request& request = job->request;
  choice.failures = 0;
  sequence.state = SequenceState::decoding;
  if (request.max_tokens == 0U) return finish(sequence, FinishReason::length, {});

  const std::span<const float> row(logits, model_.info().vocabulary);
  const std::optional<Token> sampled = choice.sampler.sample(row);
  if (!sampled) return finish(sequence, FinishReason::stop, {});
  const Token token = *sampled;
  choice.sampler.accept(token);
  ++choice.generated;
  ++totals_.tokens_generated;
  metrics_->tokens_generated.Increment();
  const TimePoint now = Clock::now();
  if (!job->first_token_at) {
    job->first_token_at = now;
    job->account.prefill = now - job->prefill_at;
    metrics_->time_to_first_token.Observe(seconds(now - request.arrived));
  }
  if (choice.last_token_at) metrics_->inter_token.Observe(seconds(now - *choice.last_token_at));
  choice.last_token_at = now;
  job->account.decode = now - *job->first_token_at;

  if (model_.ends_generation(token)) return finish(sequence, FinishReason::stop, {});

  Delta delta{.choice = choice.index, .tokens = 1};
  if (request.top_logprobs) delta.logprobs.push_back(Sampler::logprob(model_, row, token, *request.top_logprobs));
  TextStream::Output output = choice.text.push(model_.piece(token, ParseSpecial::no));
  delta.text = std::move(output.text);
  deliver(job, std::move(delta));
  if (output.stop) return finish(sequence, FinishReason::stop, std::move(output.stop));

  sequence.tokens.push_back(token);
  if (request.max_tokens && choice.generated >= *request.max_tokens) {
    return finish(sequence, FinishReason::length, {});
  }
  if (sequence.tokens.size() > context_tokens_ && !continue_at_context_end(sequence)) {
    finish(sequence, FinishReason::length, {});
  }
}

// The context is full. With --context-shift the older half behind `keep` goes: by K-shift where the cells are this
// sequence's own, else (a shared cell has one position) by decoding what stays anew.
bool Engine::continue_at_context_end(Sequence& sequence) {
  if (!options_.context_shift) return false;
  const std::uint32_t held = pool_->length(sequence.id);
  const std::uint32_t keep = std::min(options_.keep, held / 2);
  const std::uint32_t discard = (held - keep) / 2;
  if (discard == 0) return false;
  // Blocks behind `keep` consist of other tokens from here on, and what was moved is not what a prefill would give.
  capture_backlog(sequence, held);
  sequence.captured = std::min(sequence.captured, keep / options_.block_tokens);
  sequence.chain.resize(std::min<std::size_t>(sequence.chain.size(), keep / options_.block_tokens));
  const auto begin = sequence.tokens.begin() + keep;
  sequence.tokens.erase(begin, begin + discard);
  if (pool_->shift(sequence.id, keep, discard)) {
    sequence.exact_below = std::min(sequence.exact_below.value_or(keep), keep);
  } else {
    if (!pool_->trim(sequence.id, keep)) sequence.exact_below.reset();
    sequence.state = SequenceState::prefilling;
  }
  metrics_->context_shifts.Increment();
  log::debug("context shift: sequence {} lets go of {} tokens behind {}", sequence.id, discard, keep);
  return true;
}

void Engine::finish(Sequence& sequence, FinishReason reason, std::optional<std::string> stop) {
  Choice& choice = *sequence.choice;
  const std::shared_ptr<Job> job = choice.job;
  if (!stop) {
    if (std::string held = choice.text.finish().text; !held.empty()) {
      deliver(job, Delta{.choice = choice.index, .text = std::move(held)});
    }
  }
  job->account.completion_tokens += choice.generated;
  deliver(
      job,
      ChoiceEnd{
          .choice = choice.index, .reason = reason, .stop = std::move(stop), .completion_tokens = choice.generated});
  retire(sequence);
  if (--job->choices_open == 0) end(job, RequestEnd{job->account});
}

// What is in memory stays there as a resident, for the next prompt that begins like it.
void Engine::retire(Sequence& sequence) {
  const bool keep = options_.kv_cache && sequence.choice->job->request.cache_prompt;
  const kv::SessionId session = std::exchange(sequence.choice->job->session, 0);
  sequence.choice.reset();
  sequence.source.reset();
  sequence.fetch.reset();
  sequence.pieces.clear();
  sequence.last_used = tick_;
  if (!keep) pool_->clear(sequence.id);
  if (sequence.exact_below) pool_->trim(sequence.id, *sequence.exact_below);
  sequence.exact_below.reset();
  sequence.tokens.resize(std::min<std::size_t>(sequence.tokens.size(), pool_->length(sequence.id)));
  sequence.state = sequence.tokens.empty() ? SequenceState::idle : SequenceState::resident;
  if (cache_ != nullptr && session != 0) {
    extend_chain(sequence, static_cast<std::uint32_t>(sequence.tokens.size()) / options_.block_tokens);
    cache_->end_turn(session, namespace_of(sequence.tenant), sequence.chain);
  }
  if (sequence.state == SequenceState::idle || pool_->cut() != Cut::anywhere) return;

  // A resident that only begins another one says nothing that the other does not.
  for (Sequence& other : sequences_) {
    if (other.id == sequence.id || other.state != SequenceState::resident || other.tenant != sequence.tenant) continue;
    Sequence& shorter = other.tokens.size() < sequence.tokens.size() ? other : sequence;
    Sequence& longer = &shorter == &other ? sequence : other;
    if (common_prefix(shorter.tokens, longer.tokens) < shorter.tokens.size()) continue;
    for (const Fork& fork : shorter.forks) note_fork(longer.forks, fork.at, fork.last_used);
    longer.last_used = std::max(longer.last_used, shorter.last_used);
    pool_->clear(shorter.id);
    shorter.tokens.clear();
    shorter.state = SequenceState::idle;
    if (&shorter == &sequence) return;
  }
}

}  // namespace caravan::engine
