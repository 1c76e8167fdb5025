#include "engine/embedder.h"

#include <algorithm>
#include <cmath>

#include <llama.h>

#include "engine/backends.h"
#include "engine/llama_batch.h"
#include "engine/model.h"

namespace caravan::engine {

Embedder::Embedder(llama_context* context, const Model& model, Pooling pooling, std::uint32_t chunk)
    : context_(context), model_(model), pooling_(pooling), chunk_(chunk) {}

Embedder::~Embedder() { llama_free(context_); }

Result<std::unique_ptr<Embedder>> Embedder::create(const Model& model, std::uint32_t context_tokens,
                                                   std::uint32_t chunk, std::uint32_t threads) {
  const ModelInfo& info = model.info();
  llama_context_params params = llama_context_default_params();
  params.n_ctx = context_tokens;
  params.n_batch = info.decoder ? chunk : context_tokens;  // attention both ways needs the whole text in one batch
  params.n_ubatch = params.n_batch;
  params.n_seq_max = 1;
  params.n_threads = params.n_threads_batch = static_cast<std::int32_t>(threads);
  params.embeddings = true;
  params.pooling_type = LLAMA_POOLING_TYPE_UNSPECIFIED;  // the model's own, asked for below
  params.no_perf = true;
  const ComplaintRecorder complaints;
  llama_context* context = llama_init_from_model(model.handle(), params);
  Pooling pooling = Pooling::mean;
  if (context != nullptr) {
    const enum llama_pooling_type own = llama_pooling_type(context);
    pooling = own == LLAMA_POOLING_TYPE_CLS    ? Pooling::cls
              : own == LLAMA_POOLING_TYPE_LAST ? Pooling::last
                                               : Pooling::mean;
    if (own != LLAMA_POOLING_TYPE_NONE) {  // libllama would pool each batch alone; we pool over all of them
      llama_free(context);
      params.pooling_type = LLAMA_POOLING_TYPE_NONE;
      context = llama_init_from_model(model.handle(), params);
    }
  }
  if (context == nullptr) {
    return fail(ErrorCode::unsupported, "{} gives no embeddings: {}", info.name,
                complaints.first().empty() ? "no context could be made" : complaints.first());
  }
  return std::unique_ptr<Embedder>(new Embedder(context, model, pooling, params.n_batch));
}

void Embedder::begin(std::vector<Token> tokens) {
  abandon();
  tokens_ = std::move(tokens);
  sum_.assign(model_.info().embedding_length, 0.0F);
}

void Embedder::abandon() {
  if (llama_memory_t memory = llama_get_memory(context_)) llama_memory_clear(memory, false);
  tokens_.clear();
  done_ = 0;
}

void Embedder::set_threads(std::uint32_t threads) {
  llama_set_n_threads(context_, static_cast<std::int32_t>(threads), static_cast<std::int32_t>(threads));
}

void Embedder::pool(std::span<const float> vector, std::size_t position) {
  const bool taken = pooling_ == Pooling::mean || (pooling_ == Pooling::cls && position == 0) ||
                     (pooling_ == Pooling::last && position + 1 == tokens_.size());
  if (!taken) return;
  for (std::size_t i = 0; i < sum_.size(); ++i) sum_[i] += vector[i];
}

Result<std::optional<std::vector<float>>> Embedder::step() {
  const std::size_t count = std::min<std::size_t>(chunk_, tokens_.size() - done_);
  LlamaBatch batch(static_cast<std::uint32_t>(count));
  for (std::size_t i = 0; i < count; ++i) batch.add(tokens_[done_ + i], static_cast<std::uint32_t>(done_ + i), 0, true);
  const int answer = model_.info().decoder ? llama_decode(context_, batch.get()) : llama_encode(context_, batch.get());
  if (answer != 0) {
    abandon();
    return fail(ErrorCode::internal, "libllama could not evaluate the text for its embedding (code {})", answer);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const float* vector = llama_get_embeddings_ith(context_, static_cast<std::int32_t>(i));
    if (vector == nullptr) {
      abandon();
      return fail(ErrorCode::unsupported, "{} gives no token embeddings", model_.info().name);
    }
    pool({vector, sum_.size()}, done_ + i);
  }
  done_ += count;
  if (done_ < tokens_.size()) return std::nullopt;

  double square = 0;
  for (const float value : sum_) square += double{value} * value;
  const auto scale = square > 0 ? static_cast<float>(1.0 / std::sqrt(square)) : 0.0F;
  std::vector<float> values = std::move(sum_);
  for (float& value : values) value *= scale;
  abandon();
  return values;
}

}  // namespace caravan::engine
