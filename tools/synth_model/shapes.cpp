#include "shapes.h"

#include <algorithm>
#include <cmath>

namespace caravan::synth {
namespace {

constexpr float norm_epsilon = 1e-5F;
// Random attention is close to uniform, and then all prompts look alike: larger Q and K make it choose.
constexpr float attention_gain = 3;
// Embeddings small beside what the layers add, so that the next token follows the context and not the last token alone.
constexpr float embedding_scale = 0.25F;
// Logits with a deviation of 4: the silent tokens, at zero, are then hardly ever sampled.
constexpr float output_gain = 4;
constexpr std::uint32_t convolution = 4;
constexpr std::uint64_t parameters_max = std::uint64_t{1} << 36;
// Short time steps (softplus of this), so that a state remembers hundreds of tokens.
constexpr float time_step = -4;

class Builder {
 public:
  Builder(std::string architecture, const Dimensions& dimensions, ggml_type type)
      : architecture_(std::move(architecture)), dimensions_(dimensions), type_(type) {
    plan_.metadata.emplace_back("general.architecture", architecture_);
  }

  void general(const std::string& key, MetaValue value) {
    plan_.metadata.emplace_back("general." + key, std::move(value));
  }
  void meta(const std::string& key, MetaValue value) {
    plan_.metadata.emplace_back(architecture_ + "." + key, std::move(value));
  }

  // A matrix from `in` values to `out`; in the model's type where a row divides into its blocks.
  TensorPlan& matrix(std::string name, std::int64_t in, std::int64_t out, float gain = 1) {
    const ggml_type type = in % ggml_blck_size(type_) == 0 ? type_ : GGML_TYPE_F16;
    return add(
        {.name = std::move(name), .size = {in, out}, .type = type, .scale = gain / std::sqrt(static_cast<float>(in))});
  }
  // Parameters that libllama wants as F32.
  TensorPlan& plain(std::string name, std::vector<std::int64_t> size, Fill fill, float scale = 1) {
    return add({.name = std::move(name), .size = std::move(size), .fill = fill, .scale = scale});
  }
  void norm(const std::string& name, std::int64_t length) { plain(name + ".weight", {length}, Fill::constant); }
  void norm_with_bias(const std::string& name, std::int64_t length) {
    norm(name, length);
    plain(name + ".bias", {length}, Fill::constant, 0);
  }
  TensorPlan& add(TensorPlan tensor) { return plan_.tensors.emplace_back(std::move(tensor)); }

  void embeddings(std::uint32_t vocabulary, const std::vector<std::int64_t>& silent) {
    matrix("token_embd.weight", width(), vocabulary).scale = embedding_scale;
    matrix("output.weight", width(), vocabulary, output_gain).zero_rows = silent;
    norm("output_norm", width());
  }
  void attention(const std::string& block, std::uint32_t kv_heads) {
    matrix(block + "attn_q.weight", width(), std::int64_t{dimensions_.heads} * dimensions_.head, attention_gain);
    matrix(block + "attn_k.weight", width(), std::int64_t{kv_heads} * dimensions_.head);
    matrix(block + "attn_v.weight", width(), std::int64_t{kv_heads} * dimensions_.head);
    matrix(block + "attn_output.weight", std::int64_t{dimensions_.heads} * dimensions_.head, width());
  }
  void head_norms(const std::string& block) {
    // As the gain on Q, but for architectures that normalise it.
    plain(block + "attn_q_norm.weight", {dimensions_.head}, Fill::constant, attention_gain);
    norm(block + "attn_k_norm", dimensions_.head);
  }
  void feed_forward(const std::string& block) {
    norm(block + "ffn_norm", width());
    matrix(block + "ffn_gate.weight", width(), dimensions_.feed_forward);
    matrix(block + "ffn_up.weight", width(), dimensions_.feed_forward);
    matrix(block + "ffn_down.weight", dimensions_.feed_forward, width());
  }

  void common_meta() {
    meta("context_length", dimensions_.context);
    meta("embedding_length", dimensions_.width);
    meta("block_count", dimensions_.layers);
    meta("feed_forward_length", dimensions_.feed_forward);
    meta("attention.layer_norm_rms_epsilon", norm_epsilon);
  }
  void attention_meta() {
    meta("attention.head_count", dimensions_.heads);
    meta("attention.head_count_kv", dimensions_.kv_heads);
    meta("attention.key_length", dimensions_.head);
    meta("attention.value_length", dimensions_.head);
    meta("rope.dimension_count", dimensions_.head);
    meta("rope.freq_base", rope_base());
  }
  // Longer contexts are trained with slower rotations.
  [[nodiscard]] float rope_base() const { return dimensions_.context > 8192 ? 1e6F : 1e4F; }

  [[nodiscard]] std::int64_t width() const { return dimensions_.width; }
  [[nodiscard]] const Dimensions& dimensions() const { return dimensions_; }
  [[nodiscard]] static std::string block(std::uint32_t layer) { return "blk." + std::to_string(layer) + "."; }
  ModelPlan take() { return std::move(plan_); }

 private:
  std::string architecture_;
  Dimensions dimensions_;
  ggml_type type_;
  ModelPlan plan_;
};

void dense(Builder& model) {
  model.common_meta();
  model.attention_meta();
  for (std::uint32_t i = 0; i < model.dimensions().layers; ++i) {
    const std::string block = Builder::block(i);
    model.norm(block + "attn_norm", model.width());
    model.attention(block, model.dimensions().kv_heads);
    model.feed_forward(block);
  }
}

void qknorm(Builder& model) {
  model.common_meta();
  model.attention_meta();
  for (std::uint32_t i = 0; i < model.dimensions().layers; ++i) {
    const std::string block = Builder::block(i);
    model.norm(block + "attn_norm", model.width());
    model.attention(block, model.dimensions().kv_heads);
    model.head_norms(block);
    model.feed_forward(block);
  }
}

// Five layers of six look only at a window; libllama takes that pattern for granted here.
void iswa(Builder& model) {
  model.common_meta();
  model.attention_meta();
  model.meta("attention.sliding_window", model.dimensions().window);
  for (std::uint32_t i = 0; i < model.dimensions().layers; ++i) {
    const std::string block = Builder::block(i);
    model.norm(block + "attn_norm", model.width());
    model.attention(block, model.dimensions().kv_heads);
    model.head_norms(block);
    model.norm(block + "post_attention_norm", model.width());
    model.feed_forward(block);
    model.norm(block + "post_ffw_norm", model.width());
  }
}

void mla(Builder& model) {
  const Dimensions& d = model.dimensions();
  const std::uint32_t rope = d.head;
  model.common_meta();
  model.meta("attention.head_count", d.heads);
  model.meta("attention.head_count_kv", 1U);
  model.meta("attention.key_length", d.latent + rope);  // what the cache holds
  model.meta("attention.value_length", d.latent);
  model.meta("attention.key_length_mla", d.head + rope);  // what a head sees
  model.meta("attention.value_length_mla", d.head);
  model.meta("attention.kv_lora_rank", d.latent);
  model.meta("attention.q_lora_rank", 0U);
  model.meta("rope.dimension_count", rope);
  model.meta("rope.freq_base", model.rope_base());
  model.meta("leading_dense_block_count", d.layers);  // no experts
  model.meta("expert_feed_forward_length", d.feed_forward);
  model.meta("expert_shared_count", 0U);
  for (std::uint32_t i = 0; i < d.layers; ++i) {
    const std::string block = Builder::block(i);
    model.norm(block + "attn_norm", model.width());
    model.matrix(block + "attn_q.weight", model.width(), std::int64_t{d.heads} * (d.head + rope), attention_gain);
    model.matrix(block + "attn_kv_a_mqa.weight", model.width(), d.latent + rope);
    model.norm(block + "attn_kv_a_norm", d.latent);
    model.matrix(block + "attn_k_b.weight", d.head, d.latent).size = {d.head, d.latent, d.heads};
    model.matrix(block + "attn_v_b.weight", d.latent, d.head).size = {d.latent, d.head, d.heads};
    model.matrix(block + "attn_output.weight", std::int64_t{d.heads} * d.head, model.width());
    model.feed_forward(block);
  }
}

void recurrent(Builder& model) {
  const Dimensions& d = model.dimensions();
  const std::int64_t inner = 2 * model.width();
  const std::uint32_t rank = std::max(1U, d.width / 16);
  model.common_meta();
  model.meta("attention.head_count", 0U);
  model.meta("ssm.conv_kernel", convolution);
  model.meta("ssm.inner_size", 2 * d.width);
  model.meta("ssm.state_size", d.state);
  model.meta("ssm.time_step_rank", rank);
  for (std::uint32_t i = 0; i < d.layers; ++i) {
    const std::string block = Builder::block(i);
    model.norm(block + "attn_norm", model.width());
    model.matrix(block + "ssm_in.weight", model.width(), 2 * inner);
    model.plain(block + "ssm_conv1d.weight", {convolution, inner}, Fill::random, 0.5F);
    model.plain(block + "ssm_conv1d.bias", {inner}, Fill::constant, 0);
    model.matrix(block + "ssm_x.weight", inner, rank + 2 * d.state);
    model.matrix(block + "ssm_dt.weight", rank, inner);
    model.plain(block + "ssm_dt.bias", {inner}, Fill::constant, time_step);
    model.plain(block + "ssm_a", {d.state, inner}, Fill::decay);
    model.plain(block + "ssm_d", {inner}, Fill::constant);
    model.matrix(block + "ssm_out.weight", inner, model.width());
  }
}

// Every second layer attends; the others carry a state (mamba 2).
void hybrid(Builder& model) {
  const Dimensions& d = model.dimensions();
  const std::int64_t inner = 2 * model.width();
  const std::int64_t convolved = inner + 2 * std::int64_t{d.state};  // one group
  model.common_meta();
  model.attention_meta();
  std::vector<std::uint32_t> kv_heads(d.layers, 0);  // 0: a layer with a state
  for (std::uint32_t i = 1; i < d.layers; i += 2) kv_heads[i] = d.kv_heads;
  model.meta("attention.head_count_kv", kv_heads);
  model.meta("ssm.conv_kernel", convolution);
  model.meta("ssm.inner_size", 2 * d.width);
  model.meta("ssm.state_size", d.state);
  model.meta("ssm.time_step_rank", d.heads);
  model.meta("ssm.group_count", 1U);
  for (std::uint32_t i = 0; i < d.layers; ++i) {
    const std::string block = Builder::block(i);
    model.norm(block + "attn_norm", model.width());
    if (kv_heads[i] == 0) {
      model.matrix(block + "ssm_in.weight", model.width(), inner + convolved + d.heads);
      model.plain(block + "ssm_conv1d.weight", {convolution, convolved}, Fill::random, 0.5F);
      model.plain(block + "ssm_conv1d.bias", {convolved}, Fill::constant, 0);
      model.plain(block + "ssm_dt.bias", {d.heads}, Fill::constant, time_step);
      model.plain(block + "ssm_a", {1, d.heads}, Fill::decay);
      model.plain(block + "ssm_d", {1, d.heads}, Fill::constant);
      model.plain(block + "ssm_norm.weight", {inner, 1}, Fill::constant);
      model.matrix(block + "ssm_out.weight", inner, model.width());
    } else {
      model.attention(block, d.kv_heads);
    }
    model.feed_forward(block);
  }
}

// Every second layer attends; the others only convolve over the last tokens.
void hybrid_convolution(Builder& model) {
  const Dimensions& d = model.dimensions();
  model.common_meta();
  model.attention_meta();
  std::vector<std::uint32_t> kv_heads(d.layers, 0);
  for (std::uint32_t i = 1; i < d.layers; i += 2) kv_heads[i] = d.kv_heads;
  model.meta("attention.head_count_kv", kv_heads);
  model.meta("shortconv.l_cache", convolution - 1);
  for (std::uint32_t i = 0; i < d.layers; ++i) {
    const std::string block = Builder::block(i);
    model.norm(block + "attn_norm", model.width());
    if (kv_heads[i] == 0) {
      model.plain(block + "shortconv.conv.weight", {convolution - 1, model.width()}, Fill::random, 0.5F);
      model.matrix(block + "shortconv.in_proj.weight", model.width(), 3 * model.width());
      model.matrix(block + "shortconv.out_proj.weight", model.width(), model.width());
    } else {
      model.attention(block, d.kv_heads);
      model.head_norms(block);
    }
    model.feed_forward(block);
  }
}

// Embeddings only.
void encoder(Builder& model) {
  const Dimensions& d = model.dimensions();
  model.meta("context_length", d.context);
  model.meta("embedding_length", d.width);
  model.meta("block_count", d.layers);
  model.meta("feed_forward_length", d.feed_forward);
  model.meta("attention.layer_norm_epsilon", norm_epsilon);
  model.meta("attention.head_count", d.heads);
  model.meta("attention.causal", false);
  model.meta("pooling_type", 1U);  // mean
  for (std::uint32_t i = 0; i < d.layers; ++i) {
    const std::string block = Builder::block(i);
    for (const char* each : {"attn_q", "attn_k", "attn_v", "attn_output"}) {
      model.matrix(block + each + ".weight", model.width(), model.width());
    }
    model.norm_with_bias(block + "attn_output_norm", model.width());
    model.matrix(block + "ffn_up.weight", model.width(), d.feed_forward);
    model.matrix(block + "ffn_down.weight", d.feed_forward, model.width());
    model.norm_with_bias(block + "layer_output_norm", model.width());
  }
}

void encoder_embeddings(Builder& model, std::uint32_t vocabulary) {
  const Dimensions& d = model.dimensions();
  model.matrix("token_embd.weight", d.width, vocabulary).scale = 1;
  model.plain("position_embd.weight", {d.width, d.context}, Fill::random, 0.5F);
  model.plain("token_types.weight", {d.width, 2}, Fill::random, 0.5F);
  model.norm_with_bias("token_embd_norm", d.width);
}

Status check(const Shape& shape, const Dimensions& d) {
  const auto wrong = [](const char* flag, std::uint32_t value, const char* wanted) {
    return fail(ErrorCode::invalid_argument, "{} {}: {}", flag, value, wanted);
  };
  for (const auto& [flag, value] : {std::pair{"--layers", d.layers},
                                    {"--width", d.width},
                                    {"--heads", d.heads},
                                    {"--kv-heads", d.kv_heads},
                                    {"--head", d.head},
                                    {"--feed-forward", d.feed_forward},
                                    {"--context", d.context},
                                    {"--window", d.window},
                                    {"--state", d.state},
                                    {"--latent", d.latent}}) {
    if (value == 0) return wrong(flag, value, "must be at least 1");
    if (value > (1U << 24)) return wrong(flag, value, "must be at most 16777216");
  }
  if (d.layers > 512) return wrong("--layers", d.layers, "libllama loads at most 512");
  if (d.heads % d.kv_heads != 0) return wrong("--kv-heads", d.kv_heads, "must divide --heads");
  if (d.head % 4 != 0) return wrong("--head", d.head, "must be a multiple of 4");
  if (shape.architecture == "bert" && d.heads * d.head != d.width) {
    return wrong("--width", d.width, "must be --heads times --head for an encoder");
  }
  if (shape.architecture == "lfm2" && d.heads * d.head != d.width) {
    return wrong("--width", d.width, "must be --heads times --head for this hybrid");
  }
  if (shape.architecture == "granitehybrid" && (2 * d.width) % d.heads != 0) {
    return wrong("--heads", d.heads, "must divide twice the --width for this hybrid");
  }
  return {};
}

}  // namespace

std::vector<Shape> shapes() {
  const Dimensions bench{
      .layers = 24, .width = 1024, .heads = 16, .kv_heads = 4, .head = 64, .feed_forward = 3072, .context = 65536};
  return {
      {"dense", "llama", "grouped-query attention", {}},
      {"qknorm", "qwen3", "grouped-query attention with normalised Q and K", {}},
      {"iswa", "gemma3", "five of six layers with a sliding window", {.layers = 6}},
      {"mla", "deepseek2", "latent attention: one compressed K/V for all heads", {}},
      {"recurrent", "mamba", "a state instead of a cache", {}},
      {"hybrid", "granitehybrid", "states (mamba 2) and attention in turn", {}},
      {"hybrid-conv", "lfm2", "short convolutions and attention in turn", {}},
      {"encoder", "bert", "embeddings only, attention in both directions", {.context = 512}},
      {"bench-300m", "llama", "dense, 294M parameters, for benchmarks", bench, GGML_TYPE_Q4_0},
  };
}

std::optional<Shape> find_shape(std::string_view name) {
  for (const Shape& shape : shapes()) {
    if (shape.name == name) return shape;
  }
  return std::nullopt;
}

std::uint64_t ModelPlan::parameters() const {
  std::uint64_t total = 0;
  for (const TensorPlan& tensor : tensors) {
    std::uint64_t count = 1;
    for (const std::int64_t length : tensor.size) count *= static_cast<std::uint64_t>(length);
    total += count;
  }
  return total;
}

Result<ModelPlan> plan_model(const Shape& shape, const Dimensions& dimensions, ggml_type type, std::uint32_t vocabulary,
                             const std::vector<std::int64_t>& silent) {
  if (const Status status = check(shape, dimensions); !status) return std::unexpected(status.error());
  Builder model{std::string(shape.architecture), dimensions, type};
  model.general("type", std::string("model"));
  model.general("name", "Synthetic " + std::string(shape.name));
  model.general("quantization_version", 2U);
  model.meta("vocab_size", vocabulary);
  if (shape.architecture == "bert") {
    encoder_embeddings(model, vocabulary);
    encoder(model);
  } else {
    model.embeddings(vocabulary, silent);
  }
  if (shape.architecture == "llama") dense(model);
  if (shape.architecture == "qwen3") qknorm(model);
  if (shape.architecture == "gemma3") iswa(model);
  if (shape.architecture == "deepseek2") mla(model);
  if (shape.architecture == "mamba") recurrent(model);
  if (shape.architecture == "granitehybrid") hybrid(model);
  if (shape.architecture == "lfm2") hybrid_convolution(model);
  ModelPlan plan = model.take();
  if (shape.architecture == "lfm2") {  // libllama's name for this architecture's last norm
    for (TensorPlan& tensor : plan.tensors) {
      if (tensor.name == "output_norm.weight") tensor.name = "token_embd_norm.weight";
    }
  }
  if (plan.parameters() > parameters_max) {
    return fail(ErrorCode::invalid_argument, "{} parameters; at most {} are written", plan.parameters(),
                parameters_max);
  }
  return plan;
}

}  // namespace caravan::synth
