// Sizing: what a model needs in memory, and the context, users and types that fit. Pure: facts about the model
// (gguf_file.h) and the machine (memory_budget.h) in, figures and their reasons out. `caravan plan` prints what
// Engine::create chooses.
//
// Weights and KV are exact: computed as libllama allocates them (a test compares the bytes for every kind of model).
// Compute is a close upper bound of what libllama reserves for its graph, its logits and the buffers for quantised
// activations; libllama's public interface tells that figure neither before nor after. Embeddings have a context of
// their own, which is not counted: it is made at the first request for one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ggml.h>

#include "base/result.h"
#include "engine/gguf_file.h"
#include "engine/memory_budget.h"

namespace caravan::engine {

// What someone wants of a context; 0 is "choose".
struct SizingRequest {
  std::uint32_t cells = 0;     // for all sequences together
  std::uint32_t parallel = 0;  // users served at once
  std::uint32_t batch_tokens = 2048;
  std::uint32_t ubatch_tokens = 512;
  ggml_type type_k = GGML_TYPE_F16;
  ggml_type type_v = GGML_TYPE_F16;
  bool flash_attention = true;
  bool unified = true;           // one pool, or a stream for each user
  bool kv_cache = true;          // keep finished sequences; a unified pool then holds windowed layers in full
  std::int32_t gpu_layers = -1;  // layers on accelerators, counted from the last; -1: all
  std::optional<std::uint64_t> host_tier_bytes = 0;  // blocks kept in host memory beside the device; none: chosen
};

// A context as it would be made.
struct ContextShape {
  std::uint32_t cells = 0;      // n_ctx
  std::uint32_t sequences = 1;  // n_seq_max
  std::uint32_t batch_tokens = 2048;
  std::uint32_t ubatch_tokens = 512;
  std::uint32_t outputs_max = 0;  // rows of logits in a ubatch; 0: for each token
  ggml_type type_k = GGML_TYPE_F16;
  ggml_type type_v = GGML_TYPE_F16;
  bool flash_attention = true;
  bool unified = true;
  bool swa_full = true;
  std::uint64_t host_tier_bytes = 0;  // not libllama's, but of the same memory
};

// Sequence ids beyond the users: finished sequences stay under ids of their own.
std::uint32_t sequences_for(const ModelFacts& facts, std::uint32_t parallel, bool unified, bool kv_cache);
// libllama's own limit is 256 sequences.
inline constexpr std::uint32_t parallel_max = 96;

struct DeviceNeed {
  std::string device;
  std::string description;
  std::uint64_t available_bytes = 0;  // of what is free, what may be taken
  std::uint64_t weights_bytes = 0;
  std::uint64_t kv_bytes = 0;
  std::uint64_t compute_bytes = 0;
  std::uint64_t tier_bytes = 0;  // the host tier's, on the host alone

  [[nodiscard]] std::uint64_t total_bytes() const { return weights_bytes + kv_bytes + compute_bytes + tier_bytes; }
  [[nodiscard]] bool fits() const { return total_bytes() <= available_bytes; }
};

// By device: accelerators, then the host.
std::vector<DeviceNeed> memory_need(const ModelFacts& facts, const ContextShape& shape, std::int32_t gpu_layers,
                                    const MemoryBudget& budget);

// Bytes of K/V and states over all devices, as libllama allocates them.
std::uint64_t kv_bytes(const ModelFacts& facts, const ContextShape& shape);
std::uint64_t compute_bytes(const ModelFacts& facts, const ContextShape& shape);
// Whether rows of K and V divide into the type's blocks.
bool type_possible(const ModelFacts& facts, ggml_type type);

struct Sizing {
  ContextShape shape;
  std::uint32_t parallel = 0;
  std::uint32_t context_tokens = 0;  // longest one sequence may become
  std::vector<DeviceNeed> devices;
  bool fits = true;              // false only where the request fixed what does not fit
  std::vector<std::string> why;  // the arithmetic, a sentence a line
};

// A host tier that is to be chosen gets a quarter of what may be taken of host memory, 8 GiB at the most, before the
// context is chosen; where that leaves too little for the context, what the context leaves.
// Errors: exhausted, when not even the smallest context fits; the line holds the arithmetic.
Result<Sizing> choose(const ModelFacts& facts, const SizingRequest& request, const MemoryBudget& budget);

// Users with a context each of their own, nothing shared.
struct SizingCell {
  std::uint32_t users = 0;
  std::uint32_t context = 0;
  ggml_type type = GGML_TYPE_F16;  // of K and V
  std::uint64_t bytes = 0;         // KV and compute
  bool fits = false;
};
std::vector<SizingCell> sizing_table(const ModelFacts& facts, const SizingRequest& request, const MemoryBudget& budget);

}  // namespace caravan::engine
