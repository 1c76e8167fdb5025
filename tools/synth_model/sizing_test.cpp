// Sizing against libllama itself: what it says in its log of the buffers that it allocates, for every kind of memory.
#include "engine/sizing.h"

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <llama.h>

#include "engine/gguf_file.h"
#include "engine/model.h"
#include "file.h"
#include "shapes.h"
#include "tokenizer.h"

namespace caravan::engine {
namespace {

namespace fs = std::filesystem;

constexpr double mebi = 1 << 20;

// Sums the "... buffer size = N MiB" lines.
class BufferLog {
 public:
  BufferLog() {
    llama_log_get(&callback_, &data_);
    llama_log_set(&note, this);
  }
  ~BufferLog() { llama_log_set(callback_, data_); }
  BufferLog(const BufferLog&) = delete;
  BufferLog& operator=(const BufferLog&) = delete;

  [[nodiscard]] double kv() const { return total("KV buffer size") + total("RS buffer size"); }
  [[nodiscard]] double compute() const { return total("compute buffer size") + total("output buffer size"); }

 private:
  [[nodiscard]] double total(const std::string& name) const {
    const auto found = totals_.find(name);
    return found == totals_.end() ? 0 : found->second;
  }
  static void note(ggml_log_level, const char* text, void* self) {
    for (const char* name : {"KV buffer size", "RS buffer size", "compute buffer size", "output buffer size"}) {
      const char* at = std::strstr(text, name);
      double value = 0;
      if (at != nullptr && std::sscanf(at + std::strlen(name), " = %lf", &value) == 1) {
        static_cast<BufferLog*>(self)->totals_[name] += value;
      }
    }
  }

  std::map<std::string, double> totals_;
  ggml_log_callback callback_ = nullptr;
  void* data_ = nullptr;
};

struct FreeContext {
  void operator()(llama_context* context) const { llama_free(context); }
};

std::unique_ptr<llama_context, FreeContext> make_context(const Model& model, const ContextShape& shape) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = shape.cells;
  params.n_seq_max = shape.sequences;
  params.n_outputs_max = shape.outputs_max;
  params.n_batch = shape.batch_tokens;
  params.n_ubatch = shape.ubatch_tokens;
  params.type_k = shape.type_k;
  params.type_v = shape.type_v;
  params.kv_unified = shape.unified;
  params.swa_full = shape.swa_full;
  params.flash_attn_type = shape.flash_attention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.n_threads = params.n_threads_batch = 1;
  return std::unique_ptr<llama_context, FreeContext>(llama_init_from_model(model.handle(), params));
}

class Sizing : public testing::TestWithParam<const char*> {};

TEST_P(Sizing, AgreesWithWhatLibllamaAllocates) {
  const synth::Tokenizer tokenizer = synth::demo_tokenizer();
  const synth::Shape shape = *synth::find_shape(GetParam());
  const auto plan = synth::plan_model(shape, shape.defaults, shape.type,
                                      static_cast<std::uint32_t>(tokenizer.tokens.size()), tokenizer.control);
  const fs::path path = fs::path(testing::TempDir()) / ("sizing_" + std::string(shape.name) + ".gguf");
  ASSERT_TRUE(synth::write_model(*plan, tokenizer, 1, 2, path).has_value());
  const auto model = Model::load({.path = path});
  fs::remove(path);
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const ModelFacts& facts = (*model)->facts();
  EXPECT_EQ(facts.parameters, plan->parameters());
  EXPECT_EQ(facts.weights_bytes(), (*model)->info().size_bytes);
  EXPECT_EQ(facts.recurrent, (*model)->info().recurrent);
  EXPECT_EQ(facts.hybrid, (*model)->info().hybrid);
  EXPECT_EQ(facts.sliding_window, (*model)->info().sliding_window);

  int compared = 0;
  for (const ggml_type type : {GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0}) {
    for (const bool flash : {true, false}) {
      for (const bool unified : {true, false}) {
        for (const bool full : {true, false}) {
          for (const std::uint32_t sequences : {1U, 7U, 32U}) {
            for (const std::uint32_t cells : {512U, 1000U, 20000U}) {
              if (!flash && ggml_is_quantized(type)) continue;
              const ContextShape made{.cells = cells,
                                      .sequences = sequences,
                                      .ubatch_tokens = 256,
                                      .outputs_max = full ? 0 : sequences,
                                      .type_k = type,
                                      .type_v = type,
                                      .flash_attention = flash,
                                      .unified = unified,
                                      .swa_full = full};
              SCOPED_TRACE(fmt::format("{} flash {} unified {} full {} sequences {} cells {}", ggml_type_name(type),
                                       flash, unified, full, sequences, cells));
              const BufferLog log;
              const auto context = make_context(**model, made);
              ASSERT_NE(context, nullptr);
              // The log has two decimals.
              EXPECT_NEAR(static_cast<double>(kv_bytes(facts, made)) / mebi, log.kv(), 0.0101);
              const double compute = static_cast<double>(compute_bytes(facts, made)) / mebi;
              EXPECT_GE(compute, log.compute());
              EXPECT_LE(compute, 1.6 * log.compute() + 2);
              ++compared;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(compared, 100);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Sizing,
                         testing::Values("dense", "qknorm", "iswa", "mla", "recurrent", "hybrid", "hybrid-conv"),
                         [](const auto& info) {
                           std::string name = info.param;
                           for (char& c : name) c = c == '-' ? '_' : c;
                           return name;
                         });

}  // namespace
}  // namespace caravan::engine
