// What the metadata of a GGUF says about a model's memory, as libllama reads it. Pure.
#pragma once

#include <span>
#include <string>

#include "base/result.h"
#include "engine/gguf_file.h"
#include "engine/gguf_metadata.h"

namespace caravan::engine {

// `first` is the first shard's metadata, `tensors` those of all shards. Errors (one line, without the file's name):
// values that libllama would abort on, or that cannot be.
Result<ModelFacts> read_facts(const GgufMetadata& first, std::span<const GgufMetadata::Tensor> tensors);

}  // namespace caravan::engine
