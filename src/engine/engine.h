// The engine: one thread owns the llama_context and runs Engine::step() over all sequences (continuous batching).
//
//   engine.cpp          the thread's loop, step(), and what other threads may call
//   engine_admit.cpp    waiting choices onto sequences, each with the longest beginning that is in memory
//   engine_decode.cpp   batch, room, decode, and what to do when that fails
//   engine_emit.cpp     sample, text, stop, deliver; what becomes of a finished sequence
//   engine_tiers.cpp    blocks up from the tiers below the device, and down to them
//
// Thread safety: submit, cancel and status may be called from any thread and never wait for a decode. Everything else
// belongs to the thread that runs the engine.
// Order of life: create -> start -> stop (finishes nothing: running requests fail with `unavailable`) -> destroy.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "base/clock.h"
#include "base/mailbox.h"
#include "base/mutex.h"
#include "base/result.h"
#include "engine/batch.h"
#include "engine/compute_threads.h"
#include "engine/fair_queue.h"
#include "engine/request.h"
#include "engine/residents.h"
#include "kv/cache.h"

namespace prometheus {
class Registry;
}

namespace caravan::engine {

class Embedder;
class KvPool;
class LlamaBatch;
class Model;
struct Choice;
struct EngineMetrics;
struct Job;
struct Sequence;
class Snapshot;

enum class KvLayout { automatic, unified, streams };
enum class FlashAttention { automatic, on, off };

struct EngineOptions {
  std::uint32_t kv_cells = 0;  // cells (tokens) for all sequences together; 0: the model's trained context
  std::uint32_t parallel = 0;  // sequences decoded at once; 0: chosen
  KvLayout layout = KvLayout::automatic;
  bool kv_cache = true;        // share prefixes; off: every prompt is computed alone and nothing is kept
  std::string type_k = "f16";  // ggml type names
  std::string type_v = "f16";
  FlashAttention flash_attention = FlashAttention::automatic;
  std::uint32_t batch_tokens = 2048;  // -b: tokens in one step at the most
  std::uint32_t ubatch_tokens = 512;  // -ub: tokens computed at once
  // Of host memory, what sizing leaves to the host tier; none: chosen.
  std::optional<std::uint64_t> host_tier_bytes = 0;
  std::uint32_t block_tokens = 64;  // chunk bounds fall on multiples of this where they can
  std::uint32_t threads = 0;        // decoding; 0: all cores, adapted to what step times show
  std::uint32_t threads_batch = 0;  // prefill; 0: as `threads`
  bool context_shift = false;
  std::uint32_t keep = 0;                            // tokens kept at the front by a context shift
  std::uint32_t queue_max = 512;                     // requests waiting, all tenants together
  bool tenant_isolation = false;                     // share only between requests of one tenant
  Duration hang_timeout = std::chrono::seconds(60);  // one decode longer than this: unhealthy
  // For tests: asked before each operation on libllama's memory ("decode", "share", "trim", "shift"); true makes it
  // fail.
  std::function<bool(std::string_view)> inject_fault;
};

enum class SequenceState { idle, waiting_for_prefix, restoring, prefilling, decoding, resident };

struct SequenceStatus {
  std::uint32_t id = 0;
  SequenceState state = SequenceState::idle;
  std::string request;  // empty for residents
  std::string session;
  std::uint32_t prompt_tokens = 0;
  std::uint32_t cached_tokens = 0;
  std::uint32_t decoded_tokens = 0;  // generated
  std::uint32_t cells = 0;           // cells this sequence spans
  std::uint32_t cells_shared = 0;    // of those, also held by other sequences
};

// A snapshot after some step; cheap to read from any thread.
struct EngineStatus {
  KvLayout layout = KvLayout::unified;
  std::string layout_note;           // why, when not what was asked for
  std::string sharing_note;          // why prefixes are not shared, or only at exact ends; empty when they are
  std::string tiers_note;            // why nothing goes to the tiers below the device; empty when it does
  std::uint32_t context_tokens = 0;  // longest prompt + completion of one sequence
  std::uint32_t cells_total = 0;
  std::uint32_t cells_used = 0;  // each shared cell counted once
  std::uint32_t cells_peak = 0;  // highest cells_used so far
  std::uint32_t cells_live = 0;  // of cells_used, held by running requests
  std::uint32_t parallel = 0;
  std::uint32_t running = 0;
  std::uint32_t waiting = 0;
  std::uint32_t threads = 0;  // compute threads now
  std::uint64_t steps = 0;
  std::uint64_t prompt_tokens_computed = 0;
  std::uint64_t prompt_tokens_cached = 0;
  std::uint64_t tokens_generated = 0;
  std::uint64_t preemptions = 0;
  std::uint64_t evictions = 0;  // resident prefixes given up for room
  std::uint64_t blocks_captured = 0;
  std::uint64_t blocks_restored = 0;
  std::uint64_t restores_failed = 0;  // frames refused, or too late: computed instead
  std::uint64_t recoveries = 0;       // sequences cleared and recomputed because memory and token list disagreed (I8)
  std::vector<SequenceStatus> sequences;
};

// Bytes on one device, by use. The sum over devices is what the process holds there for this model.
struct DeviceMemory {
  std::string device;  // ggml's name: "CPU", "CUDA0", ...
  std::string description;
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
  std::uint64_t weights_bytes = 0;
  std::uint64_t kv_bytes = 0;
  std::uint64_t compute_bytes = 0;
  std::uint64_t tier_bytes = 0;  // mapped by the host tier, on the host alone
};

// Where blocks go beside the device, and the digest of the model's content that names them there.
struct EngineTiers {
  kv::Cache* cache = nullptr;
  std::string model_digest;
};

// The longest beginning of some tokens that is in memory, or will be once its owner has decoded it.
struct Match {
  std::uint32_t sequence = 0;
  std::uint32_t length = 0;   // 0: nothing to share
  bool ready = true;          // false: `sequence` has yet to decode it
  std::uint32_t common = 0;   // the longest common beginning with anything known, shareable or not
  std::uint32_t closest = 0;  // the sequence that has it
  bool whole = false;         // all that `closest` holds begins the prompt
};

class Engine {
 public:
  // `model`, `registry` and the tiers' cache must outlive the engine. Fails with one clear line when the options do not
  // fit the model or the machine.
  static Result<std::unique_ptr<Engine>> create(const Model& model, EngineOptions options,
                                                prometheus::Registry& registry, EngineTiers tiers = {});
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void start();
  void stop();

  // Errors: invalid_argument (empty or too long prompt, bad sampling or grammar), exhausted (queue full), unavailable
  // (stopped). On an error the listener is never called.
  Status submit(Request request, Listener listener);
  // Frees what the request holds within one step. Unknown or finished ids are ignored.
  void cancel(const std::string& id);

  [[nodiscard]] std::shared_ptr<const EngineStatus> status() const;
  [[nodiscard]] std::vector<DeviceMemory> memory() const;
  // The time the decode that is running now has taken; zero between decodes. More than hang_timeout means unhealthy.
  [[nodiscard]] Duration decode_age() const;
  [[nodiscard]] const EngineOptions& options() const { return options_; }  // with every default resolved

  // One round over everything there is to do; false when there was nothing. For the engine thread, and for tests that
  // drive an engine they have not started.
  bool step();

 private:
  struct Cancel {
    std::string id;
  };
  struct Stop {};
  struct Wake {};  // something has come up from the tiers
  struct Submission {
    std::shared_ptr<Job> job;
    std::vector<std::unique_ptr<Choice>> choices;
  };
  using Command = std::variant<Submission, Cancel, Wake, Stop>;

  Engine(const Model& model, EngineOptions options, std::unique_ptr<KvPool> pool, std::unique_ptr<Snapshot> snapshot,
         prometheus::Registry& registry, EngineTiers tiers);
  void run();

  // engine.cpp
  void receive();
  void receive_submission(Submission submission);
  void receive_cancel(const std::string& id);
  bool embed();
  void deliver(const std::shared_ptr<Job>& job, Event event);
  void end(const std::shared_ptr<Job>& job, Event last);
  void flush();
  void publish();
  void fail_all(const Error& error);

  // engine_admit.cpp
  void admit();
  void branch();
  [[nodiscard]] Match find_match(const Choice& choice) const;
  [[nodiscard]] bool fits(const Choice& choice, const Match& match) const;
  std::optional<std::uint32_t> sequence_for(const Match& match);
  void place(std::unique_ptr<Choice> choice, const Match& match, std::uint32_t id);
  void take_prefix(Sequence& sequence, std::uint32_t source, std::uint32_t length);
  void open_account(Sequence& sequence, const Match& match);
  [[nodiscard]] std::uint32_t quoted_tokens(const Sequence& sequence) const;

  // engine_tiers.cpp
  [[nodiscard]] const kv::BlockId& namespace_of(const std::string& tenant);
  void extend_chain(Sequence& sequence, std::uint32_t blocks);
  bool begin_restore(Sequence& sequence);
  bool restore();
  bool restore_next(Sequence& sequence, std::uint32_t& budget);
  bool restore_piece(Sequence& sequence, kv::Fetch::Piece piece);
  bool restore_together(Sequence& sequence);
  [[nodiscard]] bool lags(const Sequence& sequence) const;
  void end_restore(Sequence& sequence);
  bool capture();
  std::uint32_t capture_backlog(Sequence& sequence, std::uint32_t most);
  void capture_checkpoint(Sequence& sequence);
  [[nodiscard]] std::uint32_t next_checkpoint(const Sequence& sequence) const;
  bool make_room(std::uint32_t cells);
  [[nodiscard]] bool anyone_decodes() const;
  [[nodiscard]] std::uint32_t blocks_this_step() const;

  // engine_decode.cpp
  std::vector<BatchPart> plan();
  [[nodiscard]] std::vector<BatchCandidate> candidates() const;
  bool evict(EvictFor why, std::optional<std::uint32_t> except = std::nullopt);
  bool preempt_youngest();
  bool decode(const std::vector<BatchPart>& parts);
  void note_rate(const std::vector<BatchPart>& parts, std::uint32_t tokens, double took);
  void recover(const std::vector<BatchPart>& parts, int answer);
  void restart(Sequence& sequence);

  // engine_emit.cpp
  void emit(const std::vector<BatchPart>& parts);
  void emit_token(Sequence& sequence, const float* logits);
  bool continue_at_context_end(Sequence& sequence);
  void finish(Sequence& sequence, FinishReason reason, std::optional<std::string> stop);
  void retire(Sequence& sequence);

  [[nodiscard]] std::vector<Sequence*> running();
  [[nodiscard]] std::uint32_t running_count() const;

  const Model& model_;
  EngineOptions options_;
  std::unique_ptr<KvPool> pool_;        // none for a model that only gives embeddings
  std::unique_ptr<Snapshot> snapshot_;  // none without tiers
  kv::Cache* cache_;                    // none where this model's state cannot go to the tiers
  kv::Namespace namespace_;             // of this model; the tenant is filled in
  std::unordered_map<std::string, kv::BlockId> namespace_ids_;
  std::unique_ptr<EngineMetrics> metrics_;
  std::uint32_t context_tokens_ = 0;

  // Shared with other threads.
  Mailbox<Command> mailbox_;
  std::atomic<std::uint32_t> waiting_count_{0};  // submitted and not yet admitted
  std::atomic<bool> stopped_{false};
  std::atomic<std::int64_t> decode_started_{0};  // clock ticks; 0 between decodes
  mutable Mutex status_mutex_;
  std::shared_ptr<const EngineStatus> status_ GUARDED_BY(status_mutex_);

  // The engine thread's own.
  std::unordered_map<std::string, std::shared_ptr<Job>> jobs_;
  FairQueue<std::unique_ptr<Choice>> waiting_;
  std::vector<Sequence> sequences_;
  std::deque<std::shared_ptr<Job>> embeddings_;  // the first is being evaluated
  std::unique_ptr<Embedder> embedder_;
  bool embedding_begun_ = false;
  std::unique_ptr<LlamaBatch> batch_;
  ComputeThreads compute_threads_;
  double decode_seconds_ = 0;  // a step that only decodes, smoothed
  double prefill_rate_ = 0;    // tokens a second, smoothed
  std::uint64_t tick_ = 0;     // tokens decoded so far: the clock of the eviction policy
  std::uint64_t admissions_ = 0;
  std::vector<std::pair<std::shared_ptr<Job>, Event>> outgoing_;
  EngineStatus totals_;  // counters kept as they go
  TimePoint published_{};
  TimePoint ticked_{};
  std::thread thread_;
};

}  // namespace caravan::engine
