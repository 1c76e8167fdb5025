// The shapes that caravan-synth-model can write: what each architecture of libllama wants in metadata and tensors.
// Pure: a ModelPlan says what the file will hold; file.h writes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include <ggml.h>

#include "base/result.h"

namespace caravan::synth {

// Dimensions of a model. What a shape does not use is ignored.
struct Dimensions {
  std::uint32_t layers = 4;
  std::uint32_t width = 128;  // embedding length
  std::uint32_t heads = 4;
  std::uint32_t kv_heads = 2;
  std::uint32_t head = 32;  // key and value length of a head
  std::uint32_t feed_forward = 256;
  std::uint32_t context = 8192;  // trained context
  std::uint32_t window = 128;    // sliding window (iswa)
  std::uint32_t state = 16;      // recurrent state size (recurrent, hybrid)
  std::uint32_t latent = 64;     // rank of the latent K/V (mla)
};

struct Shape {
  std::string_view name;
  std::string_view architecture;
  std::string_view summary;
  Dimensions defaults;
  ggml_type type = GGML_TYPE_F16;
};

std::vector<Shape> shapes();
std::optional<Shape> find_shape(std::string_view name);

enum class Fill {
  random,    // normal, mean 0, deviation `scale`
  constant,  // `scale` everywhere
  decay,     // -1, -2, ...: the A of a state space model, which must be negative
};

struct TensorPlan {
  std::string name;
  std::vector<std::int64_t> size;  // ggml's order: the row length first
  ggml_type type = GGML_TYPE_F32;
  Fill fill = Fill::random;
  float scale = 1;
  std::vector<std::int64_t> zero_rows;  // rows left at zero
};

using MetaValue = std::variant<std::uint32_t, float, bool, std::string, std::vector<std::uint32_t>>;

struct ModelPlan {
  std::vector<std::pair<std::string, MetaValue>> metadata;  // without the tokenizer
  std::vector<TensorPlan> tensors;

  [[nodiscard]] std::uint64_t parameters() const;
};

// `vocabulary` tokens, of which those in `silent` must hardly ever be generated (end of text, and other control
// tokens). Errors: dimensions that do not go together.
Result<ModelPlan> plan_model(const Shape& shape, const Dimensions& dimensions, ggml_type type, std::uint32_t vocabulary,
                             const std::vector<std::int64_t>& silent);

}  // namespace caravan::synth
