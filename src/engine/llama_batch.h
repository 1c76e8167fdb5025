// RAII over llama_batch, filled token by token. For engine/ only.
#pragma once

#include <cstdint>

#include <llama.h>

#include "base/check.h"
#include "engine/request.h"

namespace caravan::engine {

class LlamaBatch {
 public:
  explicit LlamaBatch(std::uint32_t tokens_max)
      : batch_(llama_batch_init(static_cast<std::int32_t>(tokens_max), 0, 1)), tokens_max_(tokens_max) {
    batch_.n_tokens = 0;
  }
  ~LlamaBatch() { llama_batch_free(batch_); }
  LlamaBatch(const LlamaBatch&) = delete;
  LlamaBatch& operator=(const LlamaBatch&) = delete;

  void clear() { batch_.n_tokens = 0; }
  // The index under which the token's output is asked for afterwards.
  std::int32_t add(Token token, std::uint32_t position, std::uint32_t sequence, bool output) {
    const std::int32_t i = batch_.n_tokens++;
    CHECK(static_cast<std::uint32_t>(i) < tokens_max_);
    batch_.token[i] = token;
    batch_.pos[i] = static_cast<llama_pos>(position);
    batch_.n_seq_id[i] = 1;
    batch_.seq_id[i][0] = static_cast<llama_seq_id>(sequence);
    batch_.logits[i] = output ? 1 : 0;
    return i;
  }
  [[nodiscard]] llama_batch get() const { return batch_; }

 private:
  llama_batch batch_;
  std::uint32_t tokens_max_;
};

}  // namespace caravan::engine
