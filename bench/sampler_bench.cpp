// What choosing a token costs with a vocabulary of today's size, 150,000 tokens.

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <ggml.h>
#include <gguf.h>
#include <unistd.h>

#include "base/check.h"
#include "engine/json_schema.h"
#include "engine/model.h"
#include "engine/sampler.h"

namespace caravan::engine {
namespace {

constexpr std::size_t vocabulary = 150'000;

// The demo model with made-up words up to that vocabulary, and all-zero rows for them.
void write_wide_model(const std::string& from, const std::string& to) {
  ggml_context* tensors = nullptr;
  gguf_context* demo = gguf_init_from_file(from.c_str(), {.no_alloc = false, .ctx = &tensors});
  CHECK(demo != nullptr);
  gguf_context* wide = gguf_init_empty();
  gguf_set_kv(wide, demo);

  const std::int64_t words_key = gguf_find_key(demo, "tokenizer.ggml.tokens");
  const std::int64_t types_key = gguf_find_key(demo, "tokenizer.ggml.token_type");
  const std::size_t known = gguf_get_arr_n(demo, words_key);
  std::vector<std::string> words;
  std::vector<std::int32_t> types(vocabulary, 1);  // a normal token
  std::copy_n(static_cast<const std::int32_t*>(gguf_get_arr_data(demo, types_key)), known, types.begin());
  for (std::size_t i = 0; i < vocabulary; ++i) {
    words.push_back(i < known ? gguf_get_arr_str(demo, words_key, i) : "word" + std::to_string(i));
  }
  std::vector<const char*> texts;
  for (const std::string& word : words) texts.push_back(word.c_str());
  gguf_set_arr_str(wide, "tokenizer.ggml.tokens", texts.data(), texts.size());
  gguf_set_arr_data(wide, "tokenizer.ggml.token_type", GGUF_TYPE_INT32, types.data(), types.size());

  ggml_context* room = ggml_init({.mem_size = std::size_t{1} << 30, .mem_buffer = nullptr, .no_alloc = false});
  for (ggml_tensor* tensor = ggml_get_first_tensor(tensors); tensor != nullptr;
       tensor = ggml_get_next_tensor(tensors, tensor)) {
    if (gguf_find_tensor(demo, ggml_get_name(tensor)) < 0) continue;  // the blob that holds them all
    const bool by_token = tensor->ne[1] == static_cast<std::int64_t>(known);
    ggml_tensor* copy =
        by_token ? ggml_new_tensor_2d(room, tensor->type, tensor->ne[0], vocabulary) : ggml_dup_tensor(room, tensor);
    std::memset(copy->data, 0, ggml_nbytes(copy));
    std::memcpy(copy->data, tensor->data, ggml_nbytes(tensor));
    ggml_set_name(copy, ggml_get_name(tensor));
    gguf_add_tensor(wide, copy);
  }
  CHECK(gguf_write_to_file(wide, to.c_str(), false));
  ggml_free(room);
  ggml_free(tensors);
  gguf_free(wide);
  gguf_free(demo);
}

const Model& model() {
  static const std::unique_ptr<Model> loaded = [] {
    const auto path =
        std::filesystem::temp_directory_path() / ("caravan_sampler_bench_" + std::to_string(getpid()) + ".gguf");
    write_wide_model(CARAVAN_SOURCE_DIR "/models/demo/desk-2.8m-q8_0.gguf", path.string());
    auto made = Model::load({.path = path});
    std::filesystem::remove(path);
    CHECK(made.has_value());
    return std::move(*made);
  }();
  return *loaded;
}

const std::vector<float>& logits() {
  static const std::vector<float> row = [] {
    std::mt19937 random(1);
    std::normal_distribution<float> normal(0, 3);
    std::vector<float> made(vocabulary);
    for (float& logit : made) logit = normal(random);
    return made;
  }();
  return row;
}

void sample(benchmark::State& state, const SamplingParams& params) {
  auto sampler = Sampler::create(model(), params, 0);
  CHECK(sampler.has_value());
  std::vector<Token> prompt(64);
  for (std::size_t i = 0; i < prompt.size(); ++i) prompt[i] = static_cast<Token>(1000 + i);
  sampler->accept_prompt(prompt);
  const std::vector<float>& row = logits();
  for (auto _ : state) benchmark::DoNotOptimize(sampler->sample(row));
}

SamplingParams with(void (*change)(SamplingParams&)) {
  SamplingParams params;
  params.seed = 1;
  change(params);
  return params;
}

BENCHMARK_CAPTURE(sample, greedy, with([](SamplingParams& params) { params.temperature = 0; }))
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(sample, greedy_with_penalties, with([](SamplingParams& params) {
                    params.temperature = 0;
                    params.repeat_penalty = 1.1F;
                  }))
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(sample, defaults, with([](SamplingParams&) {}))->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(sample, defaults_with_penalties, with([](SamplingParams& params) { params.repeat_penalty = 1.1F; }))
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(sample, whole_vocabulary, with([](SamplingParams& params) {
                    params.top_k = 0;
                    params.top_p = 1;
                  }))
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(sample, whole_vocabulary_top_p, with([](SamplingParams& params) { params.top_k = 0; }))
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(sample, mirostat_2, with([](SamplingParams& params) { params.mirostat = 2; }))
    ->Unit(benchmark::kMicrosecond);
// These logits know nothing of JSON: the dear case, in which the grammar is asked about every token.
BENCHMARK_CAPTURE(sample, json_against_the_model,
                  with([](SamplingParams& params) { params.grammar = json_object_grammar(); }))
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(sample, grammar_that_fits,
                  with([](SamplingParams& params) { params.grammar = "root ::= [a-z0-9 ]+"; }))
    ->Unit(benchmark::kMicrosecond);

void logprobs_top_5(benchmark::State& state) {
  const std::vector<float>& row = logits();
  for (auto _ : state) benchmark::DoNotOptimize(Sampler::logprob(model(), row, 17, 5));
}
BENCHMARK(logprobs_top_5)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace caravan::engine
