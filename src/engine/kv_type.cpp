#include "engine/kv_type.h"

#include <array>

namespace caravan::engine {
namespace {

constexpr std::array kv_types = {GGML_TYPE_F32,  GGML_TYPE_F16,  GGML_TYPE_BF16, GGML_TYPE_Q8_0,  GGML_TYPE_Q5_1,
                                 GGML_TYPE_Q5_0, GGML_TYPE_Q4_1, GGML_TYPE_Q4_0, GGML_TYPE_IQ4_NL};

}  // namespace

Result<ggml_type> parse_kv_type(const std::string& name, const char* flag) {
  std::string known;
  for (const ggml_type type : kv_types) {
    if (name == ggml_type_name(type)) return type;
    known += known.empty() ? "" : ", ";
    known += ggml_type_name(type);
  }
  return fail(ErrorCode::invalid_argument, "{} {}: no such KV type; one of {}", flag, name, known);
}

}  // namespace caravan::engine
