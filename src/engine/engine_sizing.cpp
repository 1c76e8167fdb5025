#include "engine/engine_sizing.h"

#include <algorithm>

#include "engine/kv_type.h"

namespace caravan::engine {

std::string unified_obstacle(const ModelFacts& facts) {
  if (facts.recurrent) return "a recurrent model has one state a sequence, no pool of cells";
  // libllama goes on, without the sparse attention that the model was trained with.
  if (facts.architecture == "minimax-m3") return "its sparse attention needs a stream for each sequence";
  return {};
}

Result<SizingRequest> sizing_request(const ModelFacts& facts, const EngineOptions& options, std::int32_t gpu_layers) {
  const auto type_k = parse_kv_type(options.type_k, "--cache-type-k");
  if (!type_k) return std::unexpected(type_k.error());
  const auto type_v = parse_kv_type(options.type_v, "--cache-type-v");
  if (!type_v) return std::unexpected(type_v.error());
  const bool wants_unified =
      options.layout == KvLayout::unified || (options.layout == KvLayout::automatic && options.kv_cache);
  return SizingRequest{.cells = options.kv_cells,
                       .parallel = options.parallel,
                       .batch_tokens = options.batch_tokens,
                       .ubatch_tokens = std::min(options.ubatch_tokens, options.batch_tokens),
                       .type_k = *type_k,
                       .type_v = *type_v,
                       .flash_attention = options.flash_attention != FlashAttention::off,
                       .unified = wants_unified && unified_obstacle(facts).empty(),
                       .kv_cache = options.kv_cache,
                       .gpu_layers = gpu_layers,
                       .host_tier_bytes = options.kv_cache ? options.host_tier_bytes : 0};
}

}  // namespace caravan::engine
