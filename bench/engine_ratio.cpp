// The engine's throughput against a bare libllama loop with the same batches, turn about in one process.
//
//   caravan-bench-engine MODEL [ROUNDS]
//
// Both sides decode the same number of tokens in batches of the same shape with greedy sampling; the ratio is bare time
// over engine time, so 1.00 means that the engine costs nothing.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include <llama.h>

#include "engine/engine_fixture.h"
#include "engine/llama_batch.h"
#include "engine/llama_handles.h"

namespace {

using namespace caravan;
using namespace caravan::engine;

struct Load {
  const char* name;
  std::uint32_t sequences;
  std::uint32_t prompt;
  std::uint32_t answer;
};

std::vector<Token> prompt_for(const Model& model, std::uint32_t sequence, std::uint32_t round, std::uint32_t length) {
  std::mt19937 random(round * 1000 + sequence);
  std::vector<Token> tokens(length);
  for (Token& token : tokens) token = static_cast<Token>(random() % (model.info().vocabulary - 10));
  return tokens;
}

Token most_probable(const float* logits, std::uint32_t count) {
  return static_cast<Token>(std::max_element(logits, logits + count) - logits);
}

struct Times {
  double prefill = 0;  // seconds to the first tokens of all sequences
  double decode = 0;
};

// What anybody would write against libllama: one prompt after another in whole batches, then all sequences together.
Times bare(llama_context* context, const Model& model, const Load& load, std::uint32_t round,
           std::uint32_t batch_tokens) {
  llama_memory_clear(llama_get_memory(context), false);
  LlamaBatch batch(batch_tokens);
  std::vector<Token> next(load.sequences);
  Times times;
  const TimePoint start = Clock::now();
  std::vector<std::vector<Token>> prompts;
  for (std::uint32_t s = 0; s < load.sequences; ++s) prompts.push_back(prompt_for(model, s, round, load.prompt));
  std::vector<std::pair<std::uint32_t, std::int32_t>> outputs;
  std::uint32_t in_batch = 0;
  const auto decode = [&] {
    if (llama_decode(context, batch.get()) != 0) std::abort();
    for (const auto& [sequence, index] : outputs) {
      next[sequence] = most_probable(llama_get_logits_ith(context, index), model.info().vocabulary);
    }
    outputs.clear();
    batch.clear();
    in_batch = 0;
  };
  for (std::uint32_t s = 0; s < load.sequences; ++s) {
    for (std::uint32_t i = 0; i < load.prompt; ++i) {
      const bool last = i + 1 == load.prompt;
      const std::int32_t index = batch.add(prompts[s][i], i, s, last);
      if (last) outputs.emplace_back(s, index);
      if (++in_batch == batch_tokens) decode();
    }
  }
  if (in_batch > 0) decode();
  const TimePoint first = Clock::now();
  times.prefill = seconds(first - start);
  for (std::uint32_t k = 1; k < load.answer; ++k) {
    for (std::uint32_t s = 0; s < load.sequences; ++s) {
      outputs.emplace_back(s, batch.add(next[s], load.prompt + k - 1, s, true));
    }
    decode();
  }
  times.decode = seconds(Clock::now() - first);
  return times;
}

Times engine_run(HandDrivenEngine& engine, const Model& model, const Load& load, std::uint32_t round) {
  Times times;
  std::vector<std::shared_ptr<Answer>> answers;
  const TimePoint start = Clock::now();
  for (std::uint32_t s = 0; s < load.sequences; ++s) {
    Request request = HandDrivenEngine::greedy(prompt_for(model, s, round, load.prompt), load.answer);
    request.sampling.ignore_eos = false;
    request.sampling.logit_bias.clear();
    request.cache_prompt = false;
    answers.push_back(engine.submit(std::move(request)));
  }
  const auto all_begun = [&] {
    return std::ranges::all_of(answers, [](const auto& answer) { return !answer->text.empty(); });
  };
  while (!all_begun()) engine->step();
  const TimePoint first = Clock::now();
  times.prefill = seconds(first - start);
  engine.run();
  times.decode = seconds(Clock::now() - first);
  for (const auto& answer : answers) {
    if (!answer->account || answer->account->completion_tokens != load.answer) {
      std::fprintf(stderr, "an answer ended early: the model drew an end token; use a model whose answers run on\n");
      std::exit(1);
    }
  }
  return times;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: caravan-bench-engine MODEL [ROUNDS]\n");
    return 2;
  }
  const auto model = Model::load({.path = argv[1]});
  if (!model) {
    std::fprintf(stderr, "%s\n", model.error().message.c_str());
    return 1;
  }
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 5;
  EngineOptions options;
  options.kv_cells = 8192;
  options.parallel = 8;
  options.batch_tokens = 512;
  HandDrivenEngine engine(**model, options);
  if (engine.error()) {
    std::fprintf(stderr, "%s\n", engine.error()->message.c_str());
    return 1;
  }
  llama_context_params params = llama_context_default_params();
  params.n_ctx = 8192;
  params.n_batch = params.n_ubatch = 512;
  params.n_seq_max = 8;
  params.kv_unified = true;
  params.no_perf = true;
  params.n_threads = params.n_threads_batch = static_cast<std::int32_t>(std::thread::hardware_concurrency());
  const LlamaContext context(llama_init_from_model((*model)->handle(), params));

  std::printf("%-28s %14s %14s %8s %8s\n", "load", "bare tokens/s", "engine", "ratio", "spread");
  const Load loads[] = {
      {"prefill 1 x 1024", 1, 1024, 2}, {"decode 1", 1, 64, 128}, {"decode 4", 4, 64, 96}, {"decode 8", 8, 64, 64}};
  std::uint32_t turn = 0;
  for (const Load& load : loads) {
    const bool prefill = load.answer == 2;
    const double tokens = prefill ? load.prompt * load.sequences : (load.answer - 1) * load.sequences;
    std::vector<double> ratios;
    std::vector<double> bare_rates;
    std::vector<double> engine_rates;
    for (int round = 0; round < rounds; ++round, ++turn) {
      const Times a = bare(context.get(), **model, load, turn, 512);
      const Times b = engine_run(engine, **model, load, turn);
      const double bare_time = prefill ? a.prefill : a.decode;
      const double engine_time = prefill ? b.prefill : b.decode;
      ratios.push_back(bare_time / engine_time);
      bare_rates.push_back(tokens / bare_time);
      engine_rates.push_back(tokens / engine_time);
    }
    std::printf("%-28s %14.1f %14.1f %8.3f %.2f-%.2f\n", load.name, median(bare_rates), median(engine_rates),
                median(ratios), *std::ranges::min_element(ratios), *std::ranges::max_element(ratios));
    std::fflush(stdout);
  }
  return 0;
}
