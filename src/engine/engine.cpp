#include "engine/engine.h"

#include <algorithm>

#include <llama.h>

#include "base/check.h"
#include "base/log.h"
#include "engine/embedder.h"
#include "engine/engine_metrics.h"
#include "engine/kv_pool.h"
#include "engine/llama_batch.h"
#include "engine/model.h"
#include "engine/sequence.h"
#include "engine/snapshot.h"

namespace caravan::engine {
namespace {

using std::chrono::milliseconds;

constexpr Duration publish_interval = milliseconds(20);
constexpr std::uint32_t choices_max = 64;

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};

std::string sharing_note(const KvPool& pool, const EngineOptions& options) {
  if (!options.kv_cache) return "the cache is off (--no-kv-cache)";
  switch (pool.cut()) {
    case Cut::anywhere:
      return {};
    case Cut::window:
      return "layers with a sliding window keep only that: shared where the window still is";
    case Cut::at_end:
      return "recurrent state is valid only at its end: shared where a prompt continues all of it";
  }
  return {};
}

// Reads the weights once and makes the graph, so that the first request does not pay for it.
void warm_up(llama_context* context, const Model& model) {
  LlamaBatch batch(1);
  const llama_token bos = llama_vocab_bos(model.vocabulary());
  batch.add(bos == LLAMA_TOKEN_NULL ? 0 : bos, 0, 0, true);
  llama_decode(context, batch.get());
  llama_memory_clear(llama_get_memory(context), false);
  llama_synchronize(context);
}

}  // namespace

Result<std::unique_ptr<Engine>> Engine::create(const Model& model, EngineOptions options,
                                               prometheus::Registry& registry, EngineTiers tiers) {
  const std::uint32_t cores = std::max(1U, std::thread::hardware_concurrency());
  if (options.threads == 0) options.threads = cores;
  if (options.threads_batch == 0) options.threads_batch = options.threads;
  if (options.block_tokens == 0) {
    return fail(ErrorCode::invalid_argument, "--block-tokens 0: a block holds at least one token");
  }
  std::unique_ptr<KvPool> pool;
  std::unique_ptr<Snapshot> snapshot;
  if (!model.info().decoder || !options.kv_cache) tiers.cache = nullptr;
  if (model.info().sliding_window > 0 && model.info().sliding_window < options.block_tokens && tiers.cache != nullptr) {
    // A block restored is to be cut anywhere, so all its tokens must be within one window of its end.
    log::info("blocks of {} tokens rather than {}: no longer than the model's sliding window",
              model.info().sliding_window, options.block_tokens);
    options.block_tokens = model.info().sliding_window;
  }
  if (model.info().decoder) {
    auto made = KvPool::create(model, options);
    if (!made) return std::unexpected(made.error());
    pool = std::move(*made);
    if (const std::string obstacle = pool->shift_obstacle(); options.context_shift && !obstacle.empty()) {
      return fail(ErrorCode::unsupported, "--context-shift: {}; without it, answers end with `length` at {} tokens",
                  obstacle, pool->context_tokens());
    }
    if (options.context_shift && options.keep + 2 > pool->context_tokens()) {
      return fail(ErrorCode::invalid_argument, "--keep {}: must be less than the context of {} tokens", options.keep,
                  pool->context_tokens());
    }
    if (const std::string note = sharing_note(*pool, options); !note.empty()) log::info("prefix sharing: {}", note);
    warm_up(pool->context(), model);
    if (tiers.cache != nullptr) {
      snapshot = std::make_unique<Snapshot>(*pool, model, options.block_tokens);
      if (const std::string& obstacle = snapshot->obstacle(); !obstacle.empty()) {
        log::warn("nothing of this model goes to host, store or peers: {}", obstacle);
      }
    }
  }
  return std::unique_ptr<Engine>(
      new Engine(model, std::move(options), std::move(pool), std::move(snapshot), registry, std::move(tiers)));
}

Engine::Engine(const Model& model, EngineOptions options, std::unique_ptr<KvPool> pool,
               std::unique_ptr<Snapshot> snapshot, prometheus::Registry& registry, EngineTiers tiers)
    : model_(model),
      options_(std::move(options)),
      pool_(std::move(pool)),
      snapshot_(std::move(snapshot)),
      cache_(snapshot_ && snapshot_->obstacle().empty() ? tiers.cache : nullptr),
      metrics_(std::make_unique<EngineMetrics>(registry)),
      context_tokens_(pool_ ? pool_->context_tokens() : std::max(512U, model.info().context_train)),
      batch_(std::make_unique<LlamaBatch>(options_.batch_tokens)),
      compute_threads_(std::max(options_.threads, options_.threads_batch)) {
  sequences_.resize(pool_ ? pool_->sequences() : 0);
  for (std::uint32_t id = 0; id < sequences_.size(); ++id) sequences_[id].id = id;
  if (snapshot_) totals_.tiers_note = snapshot_->obstacle();
  if (cache_ != nullptr) {
    namespace_ = {.model = std::move(tiers.model_digest),
                  .adapters = {},
                  .type_k = options_.type_k,
                  .type_v = options_.type_v,
                  .rope = {},
                  .flash_attention = !snapshot_->v_transposed(),
                  .v_transposed = snapshot_->v_transposed(),
                  .block_tokens = options_.block_tokens,
                  .state_version = snapshot_version,
                  .tenant = {}};
  }
  totals_.layout = options_.layout;
  totals_.context_tokens = context_tokens_;
  totals_.parallel = options_.parallel;
  if (pool_) {
    totals_.layout_note = pool_->layout_note();
    totals_.sharing_note = sharing_note(*pool_, options_);
    totals_.cells_total = pool_->ledger().total();
  }
  publish();
}

Engine::~Engine() { stop(); }

void Engine::start() {
  CHECK(!thread_.joinable());
  thread_ = std::thread([this] { run(); });
}

void Engine::stop() {
  if (stopped_.exchange(true) && !thread_.joinable()) return;
  mailbox_.put(Stop{});
  if (thread_.joinable()) thread_.join();
}

void Engine::run() {
  while (!stopped_) {
    if (!step()) mailbox_.wait_until(Clock::now() + std::chrono::seconds(1));
  }
  receive();
  fail_all({ErrorCode::unavailable, "the server is stopping"});
  flush();
}

// ---- what other threads call ----

Status Engine::submit(Request request, Listener listener) {
  if (stopped_) return fail(ErrorCode::unavailable, "the server is stopping");
  const std::size_t length = request.prompt.size();
  if (length == 0) return fail(ErrorCode::invalid_argument, "the prompt is empty");
  if (length > context_tokens_) {
    return fail(ErrorCode::invalid_argument, "the prompt has {} tokens; the context holds {}", length, context_tokens_);
  }
  if (!request.embedding && !pool_) {
    return fail(ErrorCode::invalid_argument, "{} gives embeddings only; ask /v1/embeddings", model_.info().name);
  }
  if (const auto bad = std::ranges::find_if_not(request.prompt, [&](Token token) { return model_.valid(token); });
      bad != request.prompt.end()) {
    return fail(ErrorCode::invalid_argument, "{} is no token of this model, which has 0 to {}", *bad,
                model_.info().vocabulary - 1);
  }
  if (request.choices == 0 || request.choices > choices_max) {
    return fail(ErrorCode::invalid_argument, "n is {}; it must be 1 to {}", request.choices, choices_max);
  }

  Submission submission{.job = std::make_shared<Job>()};
  if (!request.embedding) {
    if (const Status valid = validate(request.sampling, model_); !valid) return valid;
    for (std::uint32_t i = 0; i < request.choices; ++i) {
      auto sampler = Sampler::create(model_, request.sampling, i);
      if (!sampler) return std::unexpected(sampler.error());
      sampler->accept_prompt(request.prompt);
      submission.choices.push_back(std::make_unique<Choice>(Choice{.job = submission.job,
                                                                   .index = i,
                                                                   .sampler = std::move(*sampler),
                                                                   .text = TextStream(request.stop),
                                                                   .tokens = request.prompt}));
    }
  }
  if (waiting_count_.fetch_add(1) >= options_.queue_max) {
    --waiting_count_;
    return fail(ErrorCode::exhausted, "{} requests are waiting already; try again later", options_.queue_max);
  }
  Job& job = *submission.job;
  job.account.prompt_tokens = static_cast<std::uint32_t>(length);
  job.choices_open = static_cast<std::uint32_t>(submission.choices.size());
  job.request = std::move(request);
  job.listener = std::move(listener);
  mailbox_.put(std::move(submission));
  return {};
}

void Engine::cancel(const std::string& id) { mailbox_.put(Cancel{id}); }

std::shared_ptr<const EngineStatus> Engine::status() const {
  const Lock lock(status_mutex_);
  return status_;
}

Duration Engine::decode_age() const {
  const std::int64_t started = decode_started_;
  return started == 0 ? Duration{} : Clock::now().time_since_epoch() - Duration(started);
}

// ---- the engine thread ----

bool Engine::step() {
  receive();                                    // submissions and cancels
  admit();                                      // waiting choices onto sequences, sharing what is in memory
  branch();                                     // who waited for another's prefix takes it
  const bool restored = restore();              // blocks that have come from the tiers into cells
  const std::vector<BatchPart> parts = plan();  // what to decode; makes room for it
  const bool decoded = decode(parts);           // one llama_decode over all of them
  if (decoded) emit(parts);                     // sample, text, stop
  const bool captured = capture();              // sealed blocks on their way to the tiers
  const bool embedded = embed();                // a chunk of an embedding
  flush();                                      // deliver, with figures that are up to date
  return !parts.empty() || embedded || restored || captured;
}

void Engine::receive() {
  for (Command& command : mailbox_.take()) {
    std::visit(Overloaded{[&](Submission& submission) { receive_submission(std::move(submission)); },
                          [&](const Cancel& cancelled) { receive_cancel(cancelled.id); }, [](const Wake&) {},
                          [](const Stop&) {}},
               command);
  }
}

void Engine::receive_submission(Submission submission) {
  const std::shared_ptr<Job>& job = submission.job;
  jobs_[job->request.id] = job;
  if (job->request.embedding) {
    embeddings_.push_back(job);
    return;
  }
  for (auto& choice : submission.choices) waiting_.push_back(job->request.tenant, std::move(choice));
}

void Engine::receive_cancel(const std::string& id) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return;
  const std::shared_ptr<Job> job = found->second;
  metrics_->cancelled.Increment();
  end(job, RequestFailed{{ErrorCode::cancelled, "the request was cancelled"}});
  waiting_.remove_if([&](const std::unique_ptr<Choice>& choice) { return choice->job == job; });
  for (Sequence* sequence : running()) {
    if (sequence->choice->job == job) retire(*sequence);
  }
  if (!embeddings_.empty() && embeddings_.front() == job) embedding_begun_ = false;
  std::erase(embeddings_, job);
}

// One chunk of the first embedding that waits.
bool Engine::embed() {
  if (embeddings_.empty()) return false;
  const std::shared_ptr<Job> job = embeddings_.front();
  const auto finish_with = [&](Event last) {
    embeddings_.pop_front();
    embedding_begun_ = false;
    end(job, std::move(last));
  };
  if (!embedder_) {
    auto made = Embedder::create(model_, context_tokens_, options_.ubatch_tokens, compute_threads_.count());
    if (!made) {
      finish_with(RequestFailed{made.error()});
      return true;
    }
    embedder_ = std::move(*made);
  }
  if (!embedding_begun_) {
    embedder_->begin(job->request.prompt);
    embedding_begun_ = true;
    job->account.queue = Clock::now() - job->request.arrived;
  }
  embedder_->set_threads(compute_threads_.count());
  auto result = embedder_->step();
  if (!result) {
    finish_with(RequestFailed{result.error()});
  } else if (*result) {
    job->account.computed = job->account.prompt_tokens;
    job->account.miss = MissReason::disabled;
    deliver(job, Embedding{std::move(**result)});
    finish_with(RequestEnd{job->account});
  }
  return true;
}

void Engine::deliver(const std::shared_ptr<Job>& job, Event event) {
  if (!job->ended) outgoing_.emplace_back(job, std::move(event));
}

void Engine::end(const std::shared_ptr<Job>& job, Event last) {
  if (job->ended) return;
  deliver(job, std::move(last));
  job->ended = true;
  if (!job->admitted) --waiting_count_;
  jobs_.erase(job->request.id);
}

void Engine::flush() {
  // Whoever reads the figures after an answer finds the answer in them.
  const bool ended = std::ranges::any_of(outgoing_, [](const auto& each) {
    return std::holds_alternative<RequestEnd>(each.second) || std::holds_alternative<RequestFailed>(each.second);
  });
  if (ended || Clock::now() - published_ >= publish_interval) publish();
  for (auto& [job, event] : outgoing_) job->listener(std::move(event));
  outgoing_.clear();
}

void Engine::publish() {
  auto status = std::make_shared<EngineStatus>(totals_);
  status->running = running_count();
  status->waiting = static_cast<std::uint32_t>(waiting_.size() + embeddings_.size());
  status->threads = compute_threads_.count();
  if (pool_) {
    const CellLedger& ledger = pool_->ledger();
    status->cells_used = ledger.used();
    status->cells_peak = ledger.peak();
    std::vector<std::pair<std::uint32_t, std::uint32_t>> live;
    for (const Sequence& sequence : sequences_) {
      if (sequence.state == SequenceState::idle) continue;
      const std::uint32_t held = ledger.length(sequence.id);
      SequenceStatus& each = status->sequences.emplace_back();
      each.id = sequence.id;
      each.state = sequence.state;
      each.session = sequence.session;
      each.cells = held;
      each.cells_shared = ledger.unshared_from(sequence.id);
      each.prompt_tokens = sequence.prompt_tokens;
      each.cached_tokens = sequence.cached_tokens;
      if (!sequence.choice) continue;
      each.request = sequence.choice->job->request.id;
      each.decoded_tokens = sequence.choice->generated;
      live.emplace_back(sequence.id, held);
    }
    status->cells_live = ledger.distinct(live);
  }
  published_ = Clock::now();
  const Lock lock(status_mutex_);
  status_ = std::move(status);
}

void Engine::fail_all(const Error& error) {
  while (!jobs_.empty()) end(std::shared_ptr<Job>(jobs_.begin()->second), RequestFailed{error});
  waiting_.remove_if([](const auto&) { return true; });
  embeddings_.clear();
  for (Sequence* sequence : running()) retire(*sequence);
}

std::vector<Sequence*> Engine::running() {
  std::vector<Sequence*> found;
  for (Sequence& sequence : sequences_) {
    if (sequence.choice) found.push_back(&sequence);
  }
  std::ranges::sort(found, {}, &Sequence::admission);
  return found;
}

std::uint32_t Engine::running_count() const {
  return static_cast<std::uint32_t>(
      std::ranges::count_if(sequences_, [](const Sequence& sequence) { return sequence.choice != nullptr; }));
}

}  // namespace caravan::engine
