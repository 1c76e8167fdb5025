// Sizing as the engine asks for it: from its options. `caravan plan` asks the same, without loading the model.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "engine/engine.h"
#include "engine/sizing.h"

namespace caravan::engine {

// Why this architecture cannot have one pool for all sequences; empty when it can.
std::string unified_obstacle(const ModelFacts& facts);

// Errors: invalid_argument (KV types).
Result<SizingRequest> sizing_request(const ModelFacts& facts, const EngineOptions& options, std::int32_t gpu_layers);

}  // namespace caravan::engine
