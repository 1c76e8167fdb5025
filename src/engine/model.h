// A loaded GGUF model: its weights, vocabulary and facts. Immutable after load, so every const member is thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "engine/gguf_file.h"
#include "engine/memory_budget.h"
#include "engine/request.h"

struct llama_model;
struct llama_vocab;

namespace caravan::engine {

struct ModelOptions {
  std::filesystem::path path;           // a GGUF file, its first shard, or a folder that holds one model
  std::string alias;                    // the name clients see; empty: from the file
  std::int32_t gpu_layers = -1;         // -ngl; -1: all
  std::function<void(float)> progress;  // 0..1 while loading
};

struct ModelInfo {
  std::string name;            // alias, or general.name, or the file's stem
  std::string architecture;    // "llama", "gemma3", ...
  std::string description;     // "llama 2.8M F16"
  std::filesystem::path path;  // the file (first shard) that was loaded
  std::uint64_t parameters = 0;
  std::uint64_t size_bytes = 0;
  std::uint32_t context_train = 0;
  std::uint32_t embedding_length = 0;
  std::uint32_t layers = 0;
  std::uint32_t vocabulary = 0;
  std::uint32_t sliding_window = 0;  // 0: none
  bool recurrent = false;            // state is one vector at the end, not a cell a token
  bool hybrid = false;
  bool decoder = true;        // false: embeddings only
  std::string chat_template;  // from the file; empty: none
};

enum class AddSpecial : bool { no, yes };    // BOS/EOS as the model wants them
enum class ParseSpecial : bool { no, yes };  // "<|im_end|>" in the text is the control token, or just these characters

class Model {
 public:
  // Errors are one line and name the file: not found, not a GGUF, truncated, unsupported architecture, ...
  static Result<std::unique_ptr<Model>> load(const ModelOptions& options);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  [[nodiscard]] const ModelInfo& info() const { return info_; }
  // What sizing needs: the facts, where layers were put, and the memory there was before the weights were loaded.
  [[nodiscard]] const ModelFacts& facts() const { return facts_; }
  [[nodiscard]] std::int32_t gpu_layers() const { return gpu_layers_; }
  [[nodiscard]] const MemoryBudget& budget() const { return budget_; }

  // Errors: invalid_argument when `text` is not UTF-8 or too long to tokenize.
  [[nodiscard]] Result<std::vector<Token>> tokenize(std::string_view text, AddSpecial add, ParseSpecial parse) const;
  // The bytes of one token; control tokens are empty unless `special`. Bytes may be a part of a UTF-8 character.
  [[nodiscard]] std::string piece(Token token, ParseSpecial special) const;
  [[nodiscard]] std::string detokenize(std::span<const Token> tokens, ParseSpecial special) const;
  [[nodiscard]] bool valid(Token token) const;
  [[nodiscard]] bool ends_generation(Token token) const;
  // The texts of all control tokens ("<|im_start|>", ...), for finding them in user content.
  [[nodiscard]] const std::vector<std::string>& control_texts() const { return control_texts_; }
  // BOS and EOS as text, for Jinja templates; empty where the model has none.
  [[nodiscard]] std::string bos_text() const;
  [[nodiscard]] std::string eos_text() const;

  // For engine/ only.
  [[nodiscard]] llama_model* handle() const { return model_; }
  [[nodiscard]] const llama_vocab* vocabulary() const { return vocabulary_; }

 private:
  Model() = default;

  llama_model* model_ = nullptr;
  const llama_vocab* vocabulary_ = nullptr;
  ModelInfo info_;
  ModelFacts facts_;
  std::int32_t gpu_layers_ = -1;
  MemoryBudget budget_;
  std::vector<std::string> control_texts_;
};

// Loads ggml's backends (CPU variants, GPUs) once a process and routes libllama's log into ours. Called by load;
// callers that only look at devices (sizing) call it themselves. Thread-safe.
void load_backends();

}  // namespace caravan::engine
