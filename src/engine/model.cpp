#include "engine/model.h"

#include <algorithm>
#include <array>
#include <system_error>

#include <ggml-backend.h>
#include <llama.h>

#include "base/check.h"
#include "engine/backends.h"
#include "engine/gguf_file.h"

namespace caravan::engine {
namespace {

// Texts longer than this are refused before libllama sees them; beyond it no context could hold the tokens.
constexpr std::size_t text_bytes_max = std::size_t{256} << 20;

std::string meta(const llama_model* model, const char* key) {
  const int length = llama_model_meta_val_str(model, key, nullptr, 0);
  if (length <= 0) return {};
  std::string value(static_cast<std::size_t>(length) + 1, '\0');
  llama_model_meta_val_str(model, key, value.data(), value.size());
  value.resize(static_cast<std::size_t>(length));
  return value;
}

std::string describe(const llama_model* model) {
  std::array<char, 256> buffer{};
  llama_model_desc(model, buffer.data(), buffer.size());
  return buffer.data();
}

bool on_progress(float progress, void* data) {
  (*static_cast<const std::function<void(float)>*>(data))(progress);
  return true;
}

ModelInfo describe(const llama_model* model, const llama_vocab* vocabulary, const ModelOptions& options) {
  ModelInfo info;
  info.name = options.alias;
  if (info.name.empty()) info.name = meta(model, "general.name");
  if (info.name.empty()) info.name = options.path.stem().string();
  info.architecture = meta(model, "general.architecture");
  info.description = describe(model);
  info.path = options.path;
  info.parameters = llama_model_n_params(model);
  info.size_bytes = llama_model_size(model);
  info.context_train = static_cast<std::uint32_t>(std::max(0, llama_model_n_ctx_train(model)));
  info.embedding_length = static_cast<std::uint32_t>(llama_model_n_embd(model));
  info.layers = static_cast<std::uint32_t>(llama_model_n_layer(model));
  info.vocabulary = static_cast<std::uint32_t>(llama_vocab_n_tokens(vocabulary));
  info.sliding_window = static_cast<std::uint32_t>(std::max(0, llama_model_n_swa(model)));
  info.recurrent = llama_model_is_recurrent(model);
  info.hybrid = llama_model_is_hybrid(model);
  // An encoder-only model (bert) still reports a decoder; what it lacks is causal attention.
  info.decoder =
      llama_model_has_decoder(model) && meta(model, (info.architecture + ".attention.causal").c_str()) != "false";
  if (const char* text = llama_model_chat_template(model, nullptr)) info.chat_template = text;
  return info;
}

}  // namespace

Result<std::unique_ptr<Model>> Model::load(const ModelOptions& given) {
  load_backends();
  const auto file = resolve_model(given.path);
  if (!file) return std::unexpected(file.error());
  auto facts = check_model_file(*file);
  if (!facts) return std::unexpected(facts.error());
  ModelOptions options = given;
  options.path = file->path();
  MemoryBudget budget = read_memory_budget();
  llama_model_params params = llama_model_default_params();
  // What libllama puts into AMX buffers can only be multiplied by a matrix there. Latent attention has more dimensions,
  // and aborts when the context is made; so have several sequences' states in one batch, which end in a crash.
  if (facts->latent_attention || facts->recurrent || facts->hybrid) params.use_extra_bufts = false;
  params.n_gpu_layers = options.gpu_layers;
  if (options.progress) {
    params.progress_callback = on_progress;
    params.progress_callback_user_data = const_cast<void*>(static_cast<const void*>(&options.progress));
  }
  const ComplaintRecorder complaints;
  std::unique_ptr<Model> model(new Model());
  model->model_ = llama_model_load_from_file(options.path.c_str(), params);
  if (model->model_ == nullptr) {
    const std::string reason = complaints.first();
    return fail(ErrorCode::invalid_argument, "{}: libllama cannot load this model: {}", options.path.string(),
                reason.empty() ? "no reason given" : reason);
  }
  model->vocabulary_ = llama_model_get_vocab(model->model_);
  model->info_ = describe(model->model_, model->vocabulary_, options);
  model->facts_ = std::move(*facts);
  model->gpu_layers_ = options.gpu_layers;
  model->budget_ = std::move(budget);
  if (llama_vocab_type(model->vocabulary_) == LLAMA_VOCAB_TYPE_NONE) {
    return fail(ErrorCode::unsupported, "{}: the model has no vocabulary; Caravan serves text models",
                options.path.string());
  }
  if (llama_model_is_diffusion(model->model_)) {
    return fail(ErrorCode::unsupported, "{}: {} is a diffusion model, which Caravan does not serve",
                options.path.string(), model->info_.architecture);
  }
  if (llama_model_has_encoder(model->model_) && llama_model_has_decoder(model->model_)) {
    return fail(ErrorCode::unsupported, "{}: {} is an encoder-decoder model, which Caravan does not serve",
                options.path.string(), model->info_.architecture);
  }
  for (Token token = 0; token < llama_vocab_n_tokens(model->vocabulary_); ++token) {
    // "<unk>" and its like are parsed as tokens just as control tokens are.
    const bool unknown = (llama_vocab_get_attr(model->vocabulary_, token) & LLAMA_TOKEN_ATTR_UNKNOWN) != 0;
    if (!unknown && !llama_vocab_is_control(model->vocabulary_, token)) continue;
    std::string text = model->piece(token, ParseSpecial::yes);
    if (!text.empty()) model->control_texts_.push_back(std::move(text));
  }
  return model;
}

Model::~Model() {
  if (model_ != nullptr) llama_model_free(model_);
}

Result<std::vector<Token>> Model::tokenize(std::string_view text, AddSpecial add, ParseSpecial parse) const {
  if (text.size() > text_bytes_max) {
    return fail(ErrorCode::invalid_argument, "the text has {} bytes; at most {} can be tokenized at once", text.size(),
                text_bytes_max);
  }
  std::vector<Token> tokens(text.size() + 8);  // every token but BOS/EOS stands for at least one byte
  try {
    const auto run = [&] {
      return llama_tokenize(vocabulary_, text.data(), static_cast<std::int32_t>(text.size()), tokens.data(),
                            static_cast<std::int32_t>(tokens.size()), add == AddSpecial::yes,
                            parse == ParseSpecial::yes);
    };
    std::int32_t count = run();
    if (count < 0 && count != INT32_MIN) {
      tokens.resize(static_cast<std::size_t>(-count));
      count = run();
    }
    if (count < 0)
      return fail(ErrorCode::invalid_argument, "the text of {} bytes is too long to tokenize", text.size());
    tokens.resize(static_cast<std::size_t>(count));
  } catch (const std::exception& problem) {  // libllama throws on text that is not UTF-8
    return fail(ErrorCode::invalid_argument, "the text cannot be tokenized: {}", problem.what());
  }
  return tokens;
}

std::string Model::piece(Token token, ParseSpecial special) const {
  if (!valid(token)) return {};
  std::string bytes(32, '\0');
  const auto run = [&] {
    return llama_token_to_piece(vocabulary_, token, bytes.data(), static_cast<std::int32_t>(bytes.size()), 0,
                                special == ParseSpecial::yes);
  };
  std::int32_t length = run();
  if (length < 0) {
    bytes.resize(static_cast<std::size_t>(-length));
    length = run();
  }
  bytes.resize(static_cast<std::size_t>(std::max(length, 0)));
  return bytes;
}

std::string Model::detokenize(std::span<const Token> tokens, ParseSpecial special) const {
  std::string text(tokens.size() * 4 + 16, '\0');
  const auto run = [&] {
    return llama_detokenize(vocabulary_, tokens.data(), static_cast<std::int32_t>(tokens.size()), text.data(),
                            static_cast<std::int32_t>(text.size()), false, special == ParseSpecial::yes);
  };
  std::int32_t length = run();
  if (length < 0) {
    text.resize(static_cast<std::size_t>(-length));
    length = run();
  }
  text.resize(static_cast<std::size_t>(std::max(length, 0)));
  return text;
}

bool Model::valid(Token token) const { return token >= 0 && token < llama_vocab_n_tokens(vocabulary_); }
bool Model::ends_generation(Token token) const { return llama_vocab_is_eog(vocabulary_, token); }

std::string Model::bos_text() const { return piece(llama_vocab_bos(vocabulary_), ParseSpecial::yes); }
std::string Model::eos_text() const { return piece(llama_vocab_eos(vocabulary_), ParseSpecial::yes); }

}  // namespace caravan::engine
