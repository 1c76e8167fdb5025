// For tests: models of every class, and a pool that is decoded by hand.
#pragma once

#include <cmath>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <llama.h>

#include "base/check.h"
#include "base/temp_directory.h"
#include "engine/kv_pool.h"
#include "engine/llama_batch.h"
#include "engine/model.h"
#include "file.h"
#include "shapes.h"
#include "tokenizer.h"

namespace caravan::engine {

// A model of the shape, written once for all tests of this process.
inline const Model& model_of(const std::string& shape) {
  static std::map<std::string, std::unique_ptr<Model>> models;
  if (const auto found = models.find(shape); found != models.end()) return *found->second;
  const TempDirectory folder;
  const std::filesystem::path path = folder / (shape + ".gguf");
  const synth::Tokenizer tokenizer = synth::demo_tokenizer();
  const auto known = synth::find_shape(shape);
  CHECK(known.has_value());
  const auto plan = synth::plan_model(*known, known->defaults, known->type,
                                      static_cast<std::uint32_t>(tokenizer.tokens.size()), tokenizer.control);
  CHECK(plan.has_value());
  CHECK(synth::write_model(*plan, tokenizer, 1, 1, path).has_value());
  auto loaded = Model::load({.path = path});
  CHECK(loaded.has_value());
  return *(models[shape] = std::move(*loaded));
}

inline std::vector<Token> prompt(std::uint32_t seed, std::size_t length) {
  std::mt19937 random(seed);
  std::vector<Token> tokens(length);
  for (Token& token : tokens) token = static_cast<Token>(random() % 2000);
  return tokens;
}

inline std::vector<Token> operator+(std::vector<Token> a, const std::vector<Token>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline constexpr std::uint32_t chunk = 64;

inline EngineOptions options_for(KvLayout layout) {
  EngineOptions options;
  options.layout = layout;
  options.kv_cells = layout == KvLayout::streams ? 4 * 1024 : 2048;
  options.parallel = 4;
  options.batch_tokens = options.ubatch_tokens = chunk;
  options.threads = options.threads_batch = 1;
  return options;
}

// A pool that is decoded by hand, chunk by chunk.
class Pool {
 public:
  Pool(const Model& model, EngineOptions options) : model_(model), batch_(chunk) {
    auto made = KvPool::create(model, options);
    CHECK(made.has_value());
    pool_ = std::move(*made);
  }
  KvPool* operator->() { return pool_.get(); }
  KvPool* get() { return pool_.get(); }

  // The logits of the last token.
  std::vector<float> decode(std::uint32_t sequence, const std::vector<Token>& tokens) {
    for (std::size_t begin = 0; begin < tokens.size(); begin += chunk) {
      const auto count = static_cast<std::uint32_t>(std::min<std::size_t>(chunk, tokens.size() - begin));
      batch_.clear();
      for (std::uint32_t i = 0; i < count; ++i) {
        batch_.add(tokens[begin + i], pool_->length(sequence) + i, sequence, i + 1 == count);
      }
      CHECK(llama_decode(pool_->context(), batch_.get()) == 0);
      CHECK(pool_->decoded(sequence, count));
    }
    const float* logits = llama_get_logits_ith(pool_->context(), -1);
    return {logits, logits + model_.info().vocabulary};
  }
  std::vector<std::uint8_t> bytes(std::uint32_t sequence) {
    const auto id = static_cast<llama_seq_id>(sequence);
    std::vector<std::uint8_t> state(llama_state_seq_get_size(pool_->context(), id));
    state.resize(llama_state_seq_get_data(pool_->context(), state.data(), state.size(), id));
    return state;
  }

 private:
  const Model& model_;
  LlamaBatch batch_;
  std::unique_ptr<KvPool> pool_;
};

inline double furthest(const std::vector<float>& a, const std::vector<float>& b) {
  double most = 0;
  for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(double{a[i]} - b[i]));
  return most;
}

}  // namespace caravan::engine
