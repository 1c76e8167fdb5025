#include "engine/gguf_facts.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <unordered_set>

#include <ggml.h>

namespace caravan::engine {
namespace {

// libllama's own limits.
constexpr std::uint64_t layers_max = 512;
constexpr std::uint64_t experts_max = 1024;
// Beyond this a value is damage, not a model.
constexpr std::uint64_t dimension_max = 1U << 24;

// Which layers look only at a window, where the file does not list them: all but every `period`th.
struct WindowPattern {
  std::string_view architecture;
  std::uint32_t period;      // 1: none does; 0: all do
  bool full_first = false;   // the first of each period attends fully, not the last
  std::uint32_t window = 0;  // where the architecture fixes it
};
constexpr std::array window_patterns = {
    WindowPattern{"gemma2", 2},
    WindowPattern{"gemma3", 6},
    WindowPattern{"gemma3n", 5},
    WindowPattern{"gemma-embedding", 6},
    WindowPattern{"exaone4", 4, false, 4096},
    WindowPattern{"exaone-moe", 4},
    WindowPattern{"olmo2", 4},
    WindowPattern{"plamo3", 8},
    WindowPattern{"llama4", 4, false, 8192},
    WindowPattern{"gpt-oss", 2},
    WindowPattern{"cohere2", 4},
    WindowPattern{"cohere2moe", 4, true},
    WindowPattern{"afmoe", 4},
    WindowPattern{"laguna", 4, true},
    WindowPattern{"mellum", 4},
    WindowPattern{"smallthinker", 4, true, 4096},
    WindowPattern{"muse-glimmer", 4},
    WindowPattern{"gemma4", 1},
    WindowPattern{"mimo2", 1},
    WindowPattern{"granite-swa", 1},
    WindowPattern{"spark2-5", 1},
    WindowPattern{"step35", 1},
    WindowPattern{"maple", 1},
    WindowPattern{"lfm2", 0},
    WindowPattern{"lfm2moe", 0},
};

constexpr std::array<std::string_view, 6> recurrent_architectures = {"mamba", "mamba2",     "rwkv6",
                                                                     "rwkv7", "rwkv6qwen2", "arwkv7"};
// Layers without K/V heads carry a state instead.
constexpr std::array<std::string_view, 9> hybrid_by_heads = {"jamba",       "plamo2",         "granitehybrid",
                                                             "lfm2",        "lfm2moe",        "nemotron_h",
                                                             "kimi-linear", "nemotron_h_moe", "bailingmoe3"};
// One layer in a few attends; the file says how many.
constexpr std::array<std::string_view, 5> hybrid_by_interval = {"qwen3next", "qwen35", "qwen35moe", "qwen4exp",
                                                                "minimax-01"};
constexpr std::array<std::string_view, 9> encoder_architectures = {"bert",       "jina-bert-v2",   "jina-bert-v3",
                                                                   "nomic-bert", "nomic-bert-moe", "neo-bert",
                                                                   "eurobert",   "modern-bert",    "gemma-embedding"};
// Caches beside the usual ones, which this does not count.
constexpr std::array<std::string_view, 7> special_architectures = {"deepseek32", "deepseek4",  "glm-dsa", "dots3note",
                                                                   "hy-v4",      "minimax-m3", "kimi-k3"};

bool is_one_of(std::string_view name, std::span<const std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

std::unexpected<Error> damaged(std::string_view key, std::uint64_t value, std::string_view wanted) {
  return fail(ErrorCode::invalid_argument, "{} is {}, which {}", key, value, wanted);
}

// Reads keys below the architecture's name; remembers the first error.
class Reader {
 public:
  Reader(const GgufMetadata& file, std::string architecture) : file_(file), architecture_(std::move(architecture)) {}

  [[nodiscard]] std::string key(std::string_view name) const { return architecture_ + "." + std::string(name); }
  [[nodiscard]] std::uint32_t number(std::string_view name, std::uint32_t otherwise = 0,
                                     std::uint64_t most = dimension_max) {
    const auto value = file_.number(key(name));
    if (!value) return otherwise;
    if (*value > most) {
      complain(damaged(key(name), *value, fmt::format("is more than {}: the file is damaged", most)).error());
      return otherwise;
    }
    return static_cast<std::uint32_t>(*value);
  }
  // A value for each layer.
  [[nodiscard]] std::vector<std::uint32_t> per_layer(std::string_view name, std::uint32_t layers,
                                                     std::vector<std::uint32_t> otherwise) {
    const auto values = file_.numbers(key(name), layers);
    if (!values) return otherwise;
    if (values->size() < layers) {
      complain(
          damaged(key(name) + "'s length", values->size(), fmt::format("is less than the {} layers", layers)).error());
      return otherwise;
    }
    std::vector<std::uint32_t> out;
    for (std::uint32_t i = 0; i < layers; ++i) {
      if ((*values)[i] > dimension_max) {
        complain(damaged(key(name), (*values)[i], "cannot be").error());
        return otherwise;
      }
      out.push_back(static_cast<std::uint32_t>((*values)[i]));
    }
    return out;
  }
  void complain(Error error) {
    if (!error_) error_ = std::move(error);
  }
  [[nodiscard]] const std::optional<Error>& error() const { return error_; }

 private:
  const GgufMetadata& file_;
  std::string architecture_;
  std::optional<Error> error_;
};

// What libllama asserts when it reads these; an abort would take the server along.
void check_experts(Reader& reader, const GgufMetadata& file, std::uint32_t layers) {
  const std::uint32_t experts = reader.number("expert_count");
  const std::uint32_t groups = reader.number("expert_group_count");
  const std::vector<std::uint32_t> used = reader.per_layer("expert_used_count", layers, {0});
  const std::uint32_t used_most = std::ranges::max(used);
  if (experts > experts_max) {
    reader.complain(damaged(reader.key("expert_count"), experts, "is more than libllama's 1024").error());
  } else if (used_most > experts || (experts > 0 && used_most == 0)) {
    reader.complain(damaged(reader.key("expert_used_count"), used_most,
                            fmt::format("does not go with an expert_count of {}", experts))
                        .error());
  } else if (experts > 0 ? groups >= experts : groups > 0) {
    reader.complain(damaged(reader.key("expert_group_count"), groups,
                            fmt::format("does not go with an expert_count of {}", experts))
                        .error());
  } else if (groups > 1) {
    const std::uint32_t groups_used = reader.number("expert_group_used_count");
    if (experts % groups != 0 || groups_used == 0 || groups_used >= groups) {
      reader.complain(damaged(reader.key("expert_group_used_count"), groups_used,
                              fmt::format("does not go with {} groups of {} experts", groups, experts))
                          .error());
    }
  }
  const std::string scaling = file.text(reader.key("rope.scaling.type")).value_or("linear");
  if (scaling != "none" && scaling != "linear" && scaling != "yarn" && scaling != "longrope") {
    reader.complain({ErrorCode::unsupported, fmt::format("{} is \"{}\"; libllama knows none, linear, yarn and longrope",
                                                         reader.key("rope.scaling.type"), scaling)});
  }
}

// Tokens must differ, and a few lists must be as long as the tokens.
Status check_tokenizer(const GgufMetadata& file, ModelFacts& facts) {
  const auto tokens = file.texts("tokenizer.ggml.tokens");
  if (!tokens) {
    if (file.has("tokenizer.ggml.tokens")) {
      return fail(ErrorCode::invalid_argument, "tokenizer.ggml.tokens is no list of texts: the file is damaged");
    }
    return {};  // the model has no vocabulary; whoever loads it says so
  }
  facts.vocabulary = static_cast<std::uint32_t>(tokens->size());
  std::unordered_set<std::string_view> seen;
  for (const std::string_view token : *tokens) {
    if (!token.empty() && !seen.insert(token).second) {
      return fail(ErrorCode::invalid_argument, "tokenizer.ggml.tokens holds \"{}\" twice: the file is damaged", token);
    }
  }
  for (const char* key : {"tokenizer.ggml.scores", "tokenizer.ggml.token_type"}) {
    const auto values = file.numbers(key, tokens->size());
    if (values && values->size() < tokens->size()) {
      return fail(ErrorCode::invalid_argument, "{} has {} values for {} tokens: the file is damaged", key,
                  values->size(), tokens->size());
    }
  }
  return {};
}

std::vector<bool> windowed_layers(const GgufMetadata& file, const Reader& reader, ModelFacts& facts,
                                  std::uint32_t layers) {
  std::vector<bool> windowed(layers, false);
  const auto pattern =
      std::ranges::find(window_patterns, std::string_view(facts.architecture), &WindowPattern::architecture);
  if (pattern == window_patterns.end()) {  // "llama" files may name a window that libllama does not use
    facts.sliding_window = 0;
    return windowed;
  }
  if (pattern->window > 0 && (facts.sliding_window > 0 || facts.architecture == "llama4"))
    facts.sliding_window = pattern->window;
  const std::string key = reader.key("attention.sliding_window");
  if (facts.architecture == "llama4" && file.number(key) == 0U) facts.sliding_window = 0;
  if (facts.architecture == "exaone4" && layers != 64) facts.sliding_window = 0;
  if (facts.sliding_window == 0) return windowed;
  const std::string pattern_key = reader.key("attention.sliding_window_pattern");
  if (file.is_array(pattern_key)) {
    const auto listed = file.numbers(pattern_key, layers);
    for (std::uint32_t i = 0; listed && i < std::min<std::size_t>(layers, listed->size()); ++i)
      windowed[i] = (*listed)[i] != 0;
    return windowed;
  }
  const std::uint64_t period = file.number(pattern_key).value_or(pattern->period);
  for (std::uint32_t i = 0; i < layers; ++i) {
    windowed[i] = period == 0 || (pattern->full_first ? i % period != 0 : i % period < period - 1);
  }
  return windowed;
}

// Numbers of recurrent state that one layer keeps for a sequence (what libllama calls r and s).
std::uint64_t state_values(Reader& reader, ModelFacts& facts) {
  const std::uint64_t width = facts.embedding_length;
  if (const std::uint64_t head = reader.number("wkv.head_size"); head > 0) {
    const std::uint64_t shifts = reader.number("token_shift_count", 2);
    return shifts * width + width * head;
  }
  if (const std::uint64_t length = reader.number("shortconv.l_cache"); length > 0) return width * (length - 1);
  const std::uint64_t kernel = reader.number("ssm.conv_kernel");
  if (const std::uint64_t head = reader.number("kda.head_dim"); head > 0) {
    const std::uint64_t inner = head * facts.heads;
    return 3 * (kernel > 0 ? kernel - 1 : 3) * inner + head * inner;
  }
  const std::uint64_t inner = reader.number("ssm.inner_size");
  const std::uint64_t state = reader.number("ssm.state_size");
  const std::uint64_t groups = reader.number("ssm.group_count");
  facts.state_inner = static_cast<std::uint32_t>(inner);
  facts.state_length = static_cast<std::uint32_t>(state);
  return (kernel > 0 ? kernel - 1 : 0) * (inner + 2 * groups * state) + state * inner;
}

void read_memory(const GgufMetadata& file, Reader& reader, ModelFacts& facts, std::uint32_t blocks,
                 std::uint32_t layers) {
  const std::vector<std::uint32_t> heads = reader.per_layer("attention.head_count", blocks, std::vector(blocks, 0U));
  const std::vector<std::uint32_t> kv_heads = reader.per_layer("attention.head_count_kv", blocks, heads);
  const std::vector<std::uint32_t> feed_forward =
      reader.per_layer("feed_forward_length", blocks, std::vector(blocks, 0U));
  facts.heads = std::ranges::max(heads);
  facts.feed_forward_length = std::ranges::max(feed_forward);
  const std::uint32_t expert_length = std::ranges::max(reader.per_layer("expert_feed_forward_length", blocks, {0}));
  const std::uint32_t experts_used = std::ranges::max(reader.per_layer("expert_used_count", blocks, {0}));
  facts.feed_forward_length = std::max(facts.feed_forward_length, (expert_length > 0  ? expert_length
                                                                   : experts_used > 0 ? facts.feed_forward_length
                                                                                      : 0) *
                                                                      experts_used);
  const std::uint32_t head = heads[0] > 0 ? facts.embedding_length / heads[0] : 0;
  const std::uint32_t key_length = reader.number("attention.key_length", head);
  const std::uint32_t value_length = reader.number("attention.value_length", head);
  const std::uint32_t key_length_windowed = reader.number("attention.key_length_swa", key_length);
  const std::uint32_t value_length_windowed = reader.number("attention.value_length_swa", value_length);
  facts.latent_attention =
      reader.number("attention.key_length_mla") > 0 && reader.number("attention.value_length_mla") > 0;
  if (const std::uint32_t rotated = reader.number("rope.dimension_count"); key_length > 0 && rotated > key_length) {
    reader.complain(damaged(reader.key("rope.dimension_count"), rotated,
                            fmt::format("is more than the {} values of a head", key_length))
                        .error());
  }
  facts.query_values = static_cast<std::uint32_t>(
      std::min<std::uint64_t>(UINT32_MAX, std::uint64_t{facts.heads} * std::max(key_length, key_length_windowed)));
  facts.sliding_window = reader.number("attention.sliding_window");
  facts.recurrent = is_one_of(facts.architecture, recurrent_architectures);
  const bool by_heads = is_one_of(facts.architecture, hybrid_by_heads);
  const bool by_interval = is_one_of(facts.architecture, hybrid_by_interval);
  const bool both = facts.architecture == "falcon-h1";  // each layer attends and has a state
  facts.hybrid = by_heads || by_interval || both;
  facts.memory_exact = !is_one_of(facts.architecture, special_architectures);
  const std::vector<bool> windowed = windowed_layers(file, reader, facts, layers);
  const std::uint64_t state = facts.recurrent || facts.hybrid ? state_values(reader, facts) : 0;
  const std::uint32_t interval = std::max(1U, reader.number("full_attention_interval", 4));
  const auto listed_recurrent = file.numbers(reader.key("attention.recurrent_layers"), layers);
  std::uint32_t layers_with_kv = layers;  // the rest of the layers read another one's
  if (facts.architecture == "gemma3n") layers_with_kv = std::min(layers, 20U);
  if (facts.architecture == "gemma4") {
    layers_with_kv = layers - std::min(layers, reader.number("attention.shared_kv_layers"));
  }

  facts.layers.resize(layers);
  for (std::uint32_t i = 0; i < layers; ++i) {
    LayerMemory& layer = facts.layers[i];
    bool has_state = facts.recurrent || both;
    bool attends = !facts.recurrent;
    if (by_heads) {
      has_state = kv_heads[i] == 0;
      attends = !has_state;
      if (facts.architecture.starts_with("nemotron_h") && feed_forward[i] > 0) has_state = attends = false;
    }
    if (by_interval) {
      has_state =
          listed_recurrent && i < listed_recurrent->size() ? (*listed_recurrent)[i] != 0 : (i + 1) % interval != 0;
      attends = !has_state;
    }
    layer.state_values = has_state ? state : 0;
    layer.windowed = attends && windowed[i];
    if (!attends || i >= layers_with_kv || !facts.decoder) continue;
    layer.key_values = kv_heads[i] * (layer.windowed ? key_length_windowed : key_length);
    layer.value_values =
        facts.latent_attention ? 0 : kv_heads[i] * (layer.windowed ? value_length_windowed : value_length);
  }
}

void read_weights(std::span<const GgufMetadata::Tensor> tensors, ModelFacts& facts, std::uint32_t blocks) {
  facts.layer_bytes.resize(blocks);
  facts.output_tied = true;
  for (const auto& tensor : tensors) {
    const auto type = static_cast<ggml_type>(tensor.type);
    facts.parameters += tensor.bytes / ggml_type_size(type) * static_cast<std::uint64_t>(ggml_blck_size(type));
    std::uint32_t layer = blocks;
    if (tensor.name.starts_with("blk.")) {
      std::from_chars(tensor.name.data() + 4, tensor.name.data() + tensor.name.size(), layer);
      if (ggml_is_quantized(type)) facts.repackable_bytes += tensor.bytes;
    }
    if (layer < blocks) {
      facts.layer_bytes[layer] += tensor.bytes;
    } else if (tensor.name.starts_with("output")) {
      facts.output_bytes += tensor.bytes;
      if (tensor.name == "output.weight") facts.output_tied = false;
    } else {
      facts.input_bytes += tensor.bytes;
    }
  }
}

}  // namespace

Result<ModelFacts> read_facts(const GgufMetadata& first, std::span<const GgufMetadata::Tensor> tensors) {
  ModelFacts facts;
  facts.architecture = first.text("general.architecture").value_or("");
  if (facts.architecture.empty()) {
    return fail(ErrorCode::invalid_argument,
                "general.architecture is missing: this is no model, or the file is damaged");
  }
  facts.name = first.text("general.name").value_or("");
  facts.chat_template = first.text("tokenizer.chat_template").value_or("");
  Reader reader(first, facts.architecture);
  const std::uint32_t blocks = reader.number("block_count", 0, UINT32_MAX);
  if (blocks == 0 || blocks > layers_max) {
    return fail(ErrorCode::unsupported, "{} is {}; libllama loads models of 1 to {} layers", reader.key("block_count"),
                blocks, layers_max);
  }
  const std::uint32_t predictors = reader.number("nextn_predict_layers");  // extra blocks that serving does not use
  if (predictors > blocks) {
    return damaged(reader.key("nextn_predict_layers"), predictors, fmt::format("is more than all {} layers", blocks));
  }
  const std::uint32_t layers = predictors < blocks ? blocks - predictors : blocks;
  facts.context_train = reader.number("context_length", 0, UINT32_MAX);
  facts.embedding_length = reader.number("embedding_length");
  if (facts.context_train == 0 || facts.embedding_length == 0) {
    return fail(ErrorCode::invalid_argument,
                "{} or {} is missing or 0: this is no language model, or the file is damaged",
                reader.key("context_length"), reader.key("embedding_length"));
  }
  facts.decoder = !is_one_of(facts.architecture, encoder_architectures) &&
                  first.flag(reader.key("attention.causal")).value_or(true);
  check_experts(reader, first, blocks);
  read_memory(first, reader, facts, blocks, layers);
  if (const Status status = check_tokenizer(first, facts); !status) return std::unexpected(status.error());
  if (facts.vocabulary == 0) facts.vocabulary = reader.number("vocab_size");
  if (reader.error()) return std::unexpected(*reader.error());
  read_weights(tensors, facts, blocks);
  return facts;
}

std::uint64_t ModelFacts::weights_bytes() const {
  std::uint64_t total = input_bytes + output_bytes;
  for (const std::uint64_t bytes : layer_bytes) total += bytes;
  return total;
}

}  // namespace caravan::engine
