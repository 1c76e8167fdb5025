// RAII for libllama's handles. For engine/ only.
#pragma once

#include <memory>

#include <llama.h>

namespace caravan::engine {

struct LlamaDeleter {
  void operator()(llama_model* model) const { llama_model_free(model); }
  void operator()(llama_context* context) const { llama_free(context); }
  void operator()(llama_sampler* sampler) const { llama_sampler_free(sampler); }
};

using LlamaModel = std::unique_ptr<llama_model, LlamaDeleter>;
using LlamaContext = std::unique_ptr<llama_context, LlamaDeleter>;
using LlamaSampler = std::unique_ptr<llama_sampler, LlamaDeleter>;

}  // namespace caravan::engine
