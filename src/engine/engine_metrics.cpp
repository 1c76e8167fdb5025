#include "engine/engine_metrics.h"

#include <prometheus/family.h>

namespace caravan::engine {
namespace {

prometheus::Counter& counter(prometheus::Registry& registry, const char* name, const char* help,
                             const prometheus::Labels& labels = {}) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
}

prometheus::Histogram& histogram(prometheus::Registry& registry, const char* name, const char* help) {
  // From half a millisecond (a token of a tiny model) to two minutes (a long prompt on a CPU), by factors of two.
  prometheus::Histogram::BucketBoundaries bounds;
  for (double bound = 0.0005; bound < 150; bound *= 2) bounds.push_back(bound);
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, bounds);
}

}  // namespace

EngineMetrics::EngineMetrics(prometheus::Registry& registry)
    : prompt_tokens(counter(registry, "caravan_prompt_tokens_total", "Prompt tokens of admitted requests")),
      prompt_tokens_computed(
          counter(registry, "caravan_prompt_tokens_computed_total", "Prompt tokens that were evaluated")),
      tokens_generated(counter(registry, "caravan_tokens_generated_total", "Tokens sampled for clients")),
      prompt_seconds(counter(registry, "caravan_prompt_seconds_total", "Time of steps that evaluated prompt tokens")),
      generation_seconds(
          counter(registry, "caravan_generation_seconds_total", "Time of steps that only generated tokens")),
      steps(counter(registry, "caravan_steps_total", "Batches decoded")),
      preemptions(counter(registry, "caravan_preemptions_total",
                          "Requests that made room for others and were continued later")),
      evictions(counter(registry, "caravan_evictions_total", "Resident prefixes (or parts) let go for room",
                        {{"tier", "device"}})),
      context_shifts(counter(registry, "caravan_context_shifts_total", "Contexts shifted at their end")),
      recoveries(
          counter(registry, "caravan_recoveries_total",
                  "Sequences cleared and recomputed because memory and token list disagreed or a decode failed")),
      cancelled(counter(registry, "caravan_requests_cancelled_total", "Requests whose client went away")),
      time_to_first_token(
          histogram(registry, "caravan_time_to_first_token_seconds", "Arrival of a request to its first token")),
      inter_token(histogram(registry, "caravan_inter_token_seconds", "Time between tokens of one choice")),
      queue(histogram(registry, "caravan_queue_seconds", "Arrival of a request to its admission")),
      step_seconds(histogram(registry, "caravan_step_seconds", "Time to decode one batch")),
      blocks_captured(counter(registry, "caravan_blocks_captured_total", "Blocks copied from the device to the host")),
      blocks_restored(counter(registry, "caravan_blocks_restored_total", "Blocks put into cells from a tier")),
      restores_failed(counter(registry, "caravan_restores_failed_total",
                              "Restores that were refused or came too late; the tokens were computed instead")),
      restore(histogram(registry, "caravan_restore_seconds",
                        "Time a request waited for blocks from the tiers and their copies")) {
  for (std::size_t i = 0; i < prompt_tokens_hit.size(); ++i) {
    prompt_tokens_hit[i] = &counter(registry, "caravan_prompt_tokens_hit_total",
                                    "Prompt tokens that were found in a cache tier and not evaluated",
                                    {{"tier", kv::name_of(static_cast<kv::TierKind>(i))}});
  }
  for (std::size_t i = 0; i < misses.size(); ++i) {
    misses[i] = &counter(registry, "caravan_prefix_misses_total",
                         "Requests by the reason why no more of the prompt was found in the cache",
                         {{"reason", name_of(static_cast<MissReason>(i))}});
  }
}

}  // namespace caravan::engine
