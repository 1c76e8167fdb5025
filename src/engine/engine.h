// The engine: one thread owns the llama_context and runs Engine::step() over all sequences (continuous batching).
//
// Thread safety: submit, cancel and status may be called from any thread and never wait for a decode. Everything else
// belongs to the thread that runs the engine.
// Order of life: create -> start -> stop (finishes nothing: running requests fail with `unavailable`) -> destroy.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "engine/request.h"

namespace prometheus {
class Registry;
}

namespace caravan::engine {

class Model;

enum class KvLayout { automatic, unified, streams };
enum class FlashAttention { automatic, on, off };

struct EngineOptions {
  std::uint32_t kv_cells = 0;  // cells (tokens) for all sequences together; 0: the model's trained context
  std::uint32_t parallel = 0;  // sequences decoded at once; 0: chosen
  KvLayout layout = KvLayout::automatic;
  bool kv_cache = true;             // share prefixes; off: every prompt is computed alone and nothing is kept
  std::string type_k = "f16";       // ggml type names
  std::string type_v = "f16";
  FlashAttention flash_attention = FlashAttention::automatic;
  std::uint32_t batch_tokens = 2048;   // -b: tokens in one step at the most
  std::uint32_t ubatch_tokens = 512;   // -ub: tokens computed at once
  std::uint32_t block_tokens = 64;     // chunk bounds fall on multiples of this where they can
  std::uint32_t threads = 0;           // decoding; 0: all cores, adapted to what step times show
  std::uint32_t threads_batch = 0;     // prefill; 0: as `threads`
  bool context_shift = false;
  std::uint32_t keep = 0;              // tokens kept at the front by a context shift
  std::uint32_t queue_max = 512;       // requests waiting, all tenants together
  bool tenant_isolation = false;       // share only between requests of one tenant
  Duration hang_timeout = std::chrono::seconds(60);  // one decode longer than this: unhealthy
};

enum class SequenceState { idle, waiting_for_prefix, prefilling, decoding, resident };

struct SequenceStatus {
  std::uint32_t id = 0;
  SequenceState state = SequenceState::idle;
  std::string request;  // empty for residents
  std::string session;
  std::uint32_t prompt_tokens = 0;
  std::uint32_t cached_tokens = 0;
  std::uint32_t decoded_tokens = 0;   // generated
  std::uint32_t cells = 0;            // cells this sequence spans
  std::uint32_t cells_shared = 0;     // of those, also held by other sequences
};

// A snapshot after some step; cheap to read from any thread.
struct EngineStatus {
  KvLayout layout = KvLayout::unified;
  std::string layout_note;            // why, when not what was asked for
  std::string sharing_note;           // why prefixes are not shared, or only at exact ends; empty when they are
  std::uint32_t context_tokens = 0;   // longest prompt + completion of one sequence
  std::uint32_t cells_total = 0;
  std::uint32_t cells_used = 0;       // each shared cell counted once
  std::uint32_t cells_peak = 0;       // highest cells_used so far
  std::uint32_t cells_live = 0;       // of cells_used, held by running requests
  std::uint32_t parallel = 0;
  std::uint32_t running = 0;
  std::uint32_t waiting = 0;
  std::uint32_t threads = 0;          // compute threads now
  std::uint64_t steps = 0;
  std::uint64_t prompt_tokens_computed = 0;
  std::uint64_t prompt_tokens_cached = 0;
  std::uint64_t tokens_generated = 0;
  std::uint64_t preemptions = 0;
  std::uint64_t evictions = 0;        // resident prefixes given up for room
  std::uint64_t recoveries = 0;       // sequences cleared and recomputed because memory and token list disagreed (I8)
  std::vector<SequenceStatus> sequences;
};

// Bytes on one device, by use. The sum over devices is what the process holds there for this model.
struct DeviceMemory {
  std::string device;       // ggml's name: "CPU", "CUDA0", ...
  std::string description;
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
  std::uint64_t weights_bytes = 0;
  std::uint64_t kv_bytes = 0;
  std::uint64_t compute_bytes = 0;
};

class Engine {
 public:
  // `model` must outlive the engine. Fails with one clear line when the options do not fit the model or the machine.
  static Result<std::unique_ptr<Engine>> create(const Model& model, const EngineOptions& options,
                                                prometheus::Registry& registry);
  virtual ~Engine() = default;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  virtual void start() = 0;
  virtual void stop() = 0;

  // Errors: invalid_argument (empty or too long prompt, bad sampling or grammar), exhausted (queue full), unavailable
  // (stopped). On an error the listener is never called.
  virtual Status submit(Request request, Listener listener) = 0;
  // Frees what the request holds within one step. Unknown or finished ids are ignored.
  virtual void cancel(const std::string& id) = 0;

  [[nodiscard]] virtual std::shared_ptr<const EngineStatus> status() const = 0;
  [[nodiscard]] virtual std::vector<DeviceMemory> memory() const = 0;
  // The time the decode that is running now has taken; zero between decodes. More than hang_timeout means unhealthy.
  [[nodiscard]] virtual Duration decode_age() const = 0;
  [[nodiscard]] virtual const EngineOptions& options() const = 0;  // with every default resolved

 protected:
  Engine() = default;
};

}  // namespace caravan::engine
