// The engine's metrics, with their names and meaning in one place. Values are recorded on the engine thread; reading is
// the registry's. No label carries text of a prompt, a session or a tenant.
#pragma once

#include <array>

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include "engine/request.h"

namespace caravan::engine {

struct EngineMetrics {
  explicit EngineMetrics(prometheus::Registry& registry);

  prometheus::Counter& prompt_tokens;  // queried
  prometheus::Counter& prompt_tokens_computed;
  prometheus::Counter& tokens_generated;
  prometheus::Counter& prompt_seconds;
  prometheus::Counter& generation_seconds;
  prometheus::Counter& steps;
  prometheus::Counter& preemptions;
  prometheus::Counter& evictions;
  prometheus::Counter& context_shifts;
  prometheus::Counter& recoveries;
  prometheus::Counter& cancelled;
  prometheus::Histogram& time_to_first_token;
  prometheus::Histogram& inter_token;
  prometheus::Histogram& queue;
  prometheus::Histogram& step_seconds;

  std::array<prometheus::Counter*, 6> misses{};                          // by MissReason
  std::array<prometheus::Counter*, kv::tier_kinds> prompt_tokens_hit{};  // by kv::TierKind
  prometheus::Counter& blocks_captured;
  prometheus::Counter& blocks_restored;
  prometheus::Counter& restores_failed;
  prometheus::Histogram& restore;
};

}  // namespace caravan::engine
