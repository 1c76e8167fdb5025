// A model on disk, before libllama sees it: which file a path means, whether it is whole and sane, and the facts that
// sizing needs. libllama reports a bad file through its log, and some hostile ones by an abort; what it would abort on
// is refused here. Everything here is thread-safe and holds no file open.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.h"

namespace caravan::engine {

struct ModelFile {
  std::vector<std::filesystem::path> shards;  // in order, at least one; libllama loads the first
  std::uint64_t bytes = 0;                    // of all shards

  [[nodiscard]] const std::filesystem::path& path() const { return shards.front(); }
};

// What one layer keeps of each token, or of each sequence.
struct LayerMemory {
  std::uint32_t key_values = 0;    // numbers of K a token; 0: keeps no K
  std::uint32_t value_values = 0;  // numbers of V a token; 0: keeps no V (latent attention reads it out of K)
  bool windowed = false;           // looks at a sliding window only
  std::uint64_t state_values = 0;  // f32 numbers of recurrent state a sequence
};

struct ModelFacts {
  std::string architecture;
  std::string name;           // general.name; empty: none
  std::string chat_template;  // empty: none
  std::uint32_t context_train = 0;
  std::uint32_t embedding_length = 0;
  std::uint32_t feed_forward_length = 0;  // of the widest layer, all experts of a token together
  std::uint32_t heads = 0;                // of the widest layer
  std::uint32_t query_values = 0;         // numbers of Q a token, of the widest layer
  std::uint32_t vocabulary = 0;
  std::uint32_t sliding_window = 0;  // 0: none
  std::uint32_t state_inner = 0;     // inner width of recurrent layers
  std::uint32_t state_length = 0;    // state numbers for each inner one
  bool recurrent = false;            // no layer attends
  bool hybrid = false;
  bool decoder = true;  // false: embeddings only, no memory at all
  bool latent_attention = false;
  std::vector<LayerMemory> layers;
  // False: an architecture with caches beside the usual ones (indexers, compressors); sizes are then estimates.
  bool memory_exact = true;

  std::uint64_t input_bytes = 0;           // token embeddings: always in host memory
  std::uint64_t output_bytes = 0;          // last norm and head
  bool output_tied = false;                // the head is the token embeddings
  std::vector<std::uint64_t> layer_bytes;  // weights by layer
  std::uint64_t repackable_bytes = 0;      // of types that a CPU may keep in a second, rearranged copy
  std::uint64_t parameters = 0;

  [[nodiscard]] std::uint64_t weights_bytes() const;
};

// `path` is a GGUF file, the first shard of one ("...-00001-of-0000N.gguf"), or a folder that holds exactly one model.
// Errors, one line each: nothing there, no or several models in the folder, a later shard given, a shard missing.
Result<ModelFile> resolve_model(const std::filesystem::path& path);

// Reads the metadata and checks it. Errors, one line each, naming the file: not a GGUF, unsupported version, truncated,
// counts or values that cannot be, shards that do not belong together.
Result<ModelFacts> check_model_file(const ModelFile& file);

}  // namespace caravan::engine
