// Embeddings, in a context of their own: made at the first request, so that a server that only chats pays nothing.
//
// A decoder model's token vectors are pooled here (mean, or as the model says), chunk by chunk, so that a long text
// does not stall the streams of others; an encoder sees its whole text at once. Owned by the engine thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "engine/request.h"

struct llama_context;

namespace caravan::engine {

class Model;

class Embedder {
 public:
  static Result<std::unique_ptr<Embedder>> create(const Model& model, std::uint32_t context_tokens, std::uint32_t chunk,
                                                  std::uint32_t threads);
  ~Embedder();
  Embedder(const Embedder&) = delete;
  Embedder& operator=(const Embedder&) = delete;

  // One text at a time: begin, then step until it gives the vector (L2-normalised) or an error.
  void begin(std::vector<Token> tokens);
  [[nodiscard]] Result<std::optional<std::vector<float>>> step();
  void abandon();

  void set_threads(std::uint32_t threads);
  [[nodiscard]] std::uint64_t kv_bytes() const { return kv_bytes_; }

 private:
  enum class Pooling { mean, cls, last };

  Embedder(llama_context* context, const Model& model, Pooling pooling, std::uint32_t chunk);
  void pool(std::span<const float> vector, std::size_t position);

  llama_context* context_;
  const Model& model_;
  Pooling pooling_;
  std::uint32_t chunk_;
  std::uint64_t kv_bytes_ = 0;
  std::vector<Token> tokens_;
  std::size_t done_ = 0;
  std::vector<float> sum_;
};

}  // namespace caravan::engine
