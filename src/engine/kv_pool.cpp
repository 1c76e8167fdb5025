#include "engine/kv_pool.h"

#include <algorithm>
#include <array>
#include <utility>

#include <ggml.h>
#include <llama.h>

#include "base/check.h"
#include "base/log.h"
#include "engine/backends.h"
#include "engine/engine_sizing.h"
#include "engine/model.h"

namespace caravan::engine {
namespace {

llama_context* make_context(const Model& model, const EngineOptions& options, const ContextShape& shape) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = shape.cells;
  params.n_batch = shape.batch_tokens;
  params.n_ubatch = shape.ubatch_tokens;
  params.n_seq_max = shape.sequences;
  params.n_threads = static_cast<std::int32_t>(options.threads);
  params.n_threads_batch = static_cast<std::int32_t>(options.threads_batch);
  params.type_k = shape.type_k;
  params.type_v = shape.type_v;
  params.kv_unified = shape.unified;
  // A full-size window cache can be cut and shared anywhere; a windowed one only where its window still is. In a
  // unified pool sharing is what the pool is for, and a windowed cache would fill up with shared cells that nobody can
  // reuse.
  params.swa_full = shape.swa_full;
  params.flash_attn_type = options.flash_attention == FlashAttention::on    ? LLAMA_FLASH_ATTN_TYPE_ENABLED
                           : options.flash_attention == FlashAttention::off ? LLAMA_FLASH_ATTN_TYPE_DISABLED
                                                                            : LLAMA_FLASH_ATTN_TYPE_AUTO;
  params.no_perf = true;
  return llama_init_from_model(model.handle(), params);
}

}  // namespace

KvPool::KvPool(llama_context* context, const Model& model, const EngineOptions& options, bool unified, Cut cut,
               std::uint32_t sequences, std::uint32_t cells_total, std::uint32_t context_tokens)
    : context_(context),
      model_(model),
      unified_(unified),
      cut_(cut),
      window_(model.info().sliding_window),
      key_quantised_(options.type_k != "f16" && options.type_k != "f32" && options.type_k != "bf16"),
      sequences_(sequences),
      context_tokens_(context_tokens),
      inject_fault_(options.inject_fault),
      ledger_(sequences, cells_total) {}

KvPool::~KvPool() { llama_free(context_); }

Result<std::unique_ptr<KvPool>> KvPool::create(const Model& model, EngineOptions& options) {
  const ModelInfo& info = model.info();
  options.ubatch_tokens = std::min(options.ubatch_tokens, options.batch_tokens);
  auto request = sizing_request(model.facts(), options, model.gpu_layers());
  if (!request) return std::unexpected(request.error());
  if (ggml_is_quantized(request->type_v) && options.flash_attention == FlashAttention::off) {
    return fail(ErrorCode::invalid_argument,
                "--cache-type-v {} needs flash attention; use --flash-attn auto, or --cache-type-v f16",
                options.type_v);
  }
  const std::string obstacle = unified_obstacle(model.facts());
  if (options.layout == KvLayout::unified && !obstacle.empty()) {
    log::warn("--kv-layout unified: {}; using streams", obstacle);
  }
  std::string note = options.layout == KvLayout::streams ? "" : obstacle;

  const ComplaintRecorder complaints;
  auto sizing = choose(model.facts(), *request, model.budget());
  if (!sizing) return std::unexpected(sizing.error());
  llama_context* context = make_context(model, options, sizing->shape);
  if (context == nullptr && sizing->shape.unified) {
    note = complaints.first().empty() ? "the model refuses a unified pool" : complaints.first();
    request->unified = false;
    sizing = choose(model.facts(), *request, model.budget());
    if (!sizing) return std::unexpected(sizing.error());
    context = make_context(model, options, sizing->shape);
    if (context != nullptr) log::warn("a unified KV pool is not possible ({}); using streams", note);
  }
  const ContextShape& shape = sizing->shape;
  options.parallel = sizing->parallel;
  options.kv_cells = shape.cells;
  if (context == nullptr) {
    return fail(ErrorCode::unsupported,
                "no context of {} cells (K {}, V {}) can be made for {}: {}; try a smaller --kvsize or other KV types",
                options.kv_cells, options.type_k, options.type_v, info.name,
                complaints.first().empty() ? "out of memory" : complaints.first());
  }
  for (const std::string& line : sizing->why) log::info("memory: {}", line);
  if (!sizing->fits) log::warn("the memory that is free may not be enough for {} cells; see caravan plan", shape.cells);
  options.layout = shape.unified ? KvLayout::unified : KvLayout::streams;
  options.kv_cells = llama_n_ctx(context);

  const Cut cut = info.recurrent || info.hybrid                                     ? Cut::at_end
                  : info.sliding_window > 0 && !(shape.unified && options.kv_cache) ? Cut::window
                                                                                    : Cut::anywhere;
  std::uint32_t context_tokens = llama_n_ctx_seq(context);
  if (info.recurrent) context_tokens = options.kv_cells;
  if (info.context_train > 0) context_tokens = std::min(context_tokens, info.context_train);
  // A recurrent sequence costs one state however long it is; its tokens are booked all the same.
  const std::uint32_t cells_total = info.recurrent ? options.kv_cells * shape.sequences : options.kv_cells;
  // The last sequence of a unified pool that shares is the scratch.
  const std::uint32_t sequences = shape.sequences - (shape.unified && options.kv_cache && shape.sequences > 1 ? 1 : 0);
  std::unique_ptr<KvPool> pool(
      new KvPool(context, model, options, shape.unified, cut, sequences, cells_total, context_tokens));
  pool->layout_note_ = std::move(note);
  pool->shape_ = shape;
  return pool;
}

std::string KvPool::shift_obstacle() const {
  std::array<char, 16> value{};
  const std::string rank_key = model_.info().architecture + ".attention.kv_lora_rank";
  if (cut_ == Cut::at_end) return "recurrent state cannot be shifted";
  if (window_ > 0) return "K-shift is unsafe with a sliding window";
  if (llama_model_meta_val_str(model_.handle(), rank_key.c_str(), value.data(), value.size()) > 0) {
    return "K-shift is unsafe with latent attention (MLA)";
  }
  const llama_rope_type rope = llama_model_rope_type(model_.handle());
  if (rope == LLAMA_ROPE_TYPE_MROPE || rope == LLAMA_ROPE_TYPE_VISION || rope == LLAMA_ROPE_TYPE_IMROPE) {
    return "K-shift is not possible with M-RoPE";
  }
  if (key_quantised_) return "K-shift is not offered for a quantised K cache";
  if (!llama_memory_can_shift(llama_get_memory(context_))) return "libllama cannot shift this model's memory";
  return {};
}

std::uint32_t KvPool::shareable(std::uint32_t source, std::uint32_t wanted) const {
  const std::uint32_t held = length(source);
  wanted = std::min(wanted, held);
  if (wanted == held || cut_ == Cut::anywhere) return wanted;
  if (cut_ == Cut::at_end) return 0;
  const llama_pos first = llama_memory_seq_pos_min(llama_get_memory(context_), static_cast<llama_seq_id>(source));
  const std::uint32_t needed_from = wanted > window_ ? wanted - window_ : 0;
  return first >= 0 && static_cast<std::uint32_t>(first) <= needed_from ? wanted : 0;
}

bool KvPool::share(std::uint32_t source, std::uint32_t target, std::uint32_t length) {
  CHECK(source != target && ledger_.length(target) == 0 && length > 0 && length <= ledger_.length(source));
  llama_memory_t memory = llama_get_memory(context_);
  const auto from = static_cast<llama_seq_id>(source);
  const auto to = static_cast<llama_seq_id>(target);
  const auto end = static_cast<llama_pos>(length);
  if (unified_ && cut_ == Cut::anywhere) {
    llama_memory_seq_cp(memory, from, to, 0, end);
  } else {  // between streams only whole sequences can be copied
    llama_memory_seq_cp(memory, from, to, -1, -1);
    if (length < ledger_.length(source) && !llama_memory_seq_rm(memory, to, end, -1)) {
      clear(target);
      return false;
    }
  }
  if (fault("share") || llama_memory_seq_pos_max(memory, to) != end - 1) {
    clear(target);
    return false;
  }
  if (unified_) {
    ledger_.share(source, target, length);
  } else {
    ledger_.append(target, length);
  }
  return true;
}

bool KvPool::trim(std::uint32_t sequence, std::uint32_t length) {
  if (length >= ledger_.length(sequence)) return true;
  if (length == 0) {
    clear(sequence);
    return true;
  }
  if (fault("trim") || shareable(sequence, length) != length ||
      !llama_memory_seq_rm(llama_get_memory(context_), static_cast<llama_seq_id>(sequence),
                           static_cast<llama_pos>(length), -1)) {
    clear(sequence);
    return false;
  }
  ledger_.trim(sequence, length);
  return true;
}

void KvPool::clear(std::uint32_t sequence) {
  llama_memory_seq_rm(llama_get_memory(context_), static_cast<llama_seq_id>(sequence), -1, -1);
  ledger_.trim(sequence, 0);
}

bool KvPool::shift(std::uint32_t sequence, std::uint32_t keep, std::uint32_t discard) {
  const std::uint32_t held = ledger_.length(sequence);
  if (keep + discard > held || ledger_.unshared_from(sequence) > keep || !shift_obstacle().empty()) return false;
  llama_memory_t memory = llama_get_memory(context_);
  const auto id = static_cast<llama_seq_id>(sequence);
  const auto begin = static_cast<llama_pos>(keep);
  const auto end = static_cast<llama_pos>(keep + discard);
  if (fault("shift") || !llama_memory_seq_rm(memory, id, begin, end)) return false;
  llama_memory_seq_add(memory, id, end, -1, begin - end);
  ledger_.erase(sequence, keep, keep + discard);
  return true;
}

bool KvPool::decoded(std::uint32_t sequence, std::uint32_t count) {
  ledger_.append(sequence, count);
  return reconcile(sequence);
}

std::optional<std::uint32_t> KvPool::scratch() const {
  return sequences_ < shape_.sequences ? std::optional(sequences_) : std::nullopt;
}

void KvPool::name_range(std::uint32_t from, std::uint32_t to, std::uint32_t begin, std::uint32_t end) {
  CHECK(scratch() && (from == *scratch() || to == *scratch()));
  llama_memory_seq_cp(llama_get_memory(context_), static_cast<llama_seq_id>(from), static_cast<llama_seq_id>(to),
                      static_cast<llama_pos>(begin), static_cast<llama_pos>(end));
}

void KvPool::forget_scratch() {
  llama_memory_seq_rm(llama_get_memory(context_), static_cast<llama_seq_id>(*scratch()), -1, -1);
}

bool KvPool::restored(std::uint32_t sequence, std::uint32_t count, bool check) {
  ledger_.append(sequence, count);
  if (fault("restore")) {
    clear(sequence);
    return false;
  }
  return !check || reconcile(sequence);
}

bool KvPool::reconcile(std::uint32_t sequence) {
  const llama_pos last = llama_memory_seq_pos_max(llama_get_memory(context_), static_cast<llama_seq_id>(sequence));
  if (last + 1 == static_cast<llama_pos>(ledger_.length(sequence))) return true;
  clear(sequence);
  return false;
}

}  // namespace caravan::engine
