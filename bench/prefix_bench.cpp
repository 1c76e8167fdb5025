// What a step pays beside the decode: matching prefixes, cell books, planning, sampling.

#include <numeric>
#include <random>

#include <benchmark/benchmark.h>

#include "engine/batch.h"
#include "engine/cell_ledger.h"
#include "engine/prefix.h"
#include "engine/text_stream.h"

namespace caravan::engine {
namespace {

void common_prefix_of_4000(benchmark::State& state) {
  std::vector<Token> a(4000);
  std::iota(a.begin(), a.end(), 0);
  const std::vector<Token> b = a;
  for (auto _ : state) benchmark::DoNotOptimize(common_prefix(a, b));
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * a.size() * sizeof(Token)));
}
BENCHMARK(common_prefix_of_4000);

void shared_after_of_4000(benchmark::State& state) {
  std::mt19937 random(1);
  std::vector<Token> a(4000);
  for (Token& token : a) token = static_cast<Token>(random() % 30000);
  std::vector<Token> b = a;
  b.insert(b.begin(), 7);
  for (auto _ : state) benchmark::DoNotOptimize(shared_after(a, 0, b));
}
BENCHMARK(shared_after_of_4000);

void share_and_drop_2000_cells(benchmark::State& state) {
  CellLedger ledger(64, 65536);
  ledger.append(0, 2000);
  for (auto _ : state) {
    ledger.share(0, 1, 2000);
    ledger.trim(1, 0);
  }
}
BENCHMARK(share_and_drop_2000_cells);

void plan_64_sequences(benchmark::State& state) {
  std::vector<BatchCandidate> candidates;
  for (std::uint32_t i = 0; i < 64; ++i) {
    candidates.push_back({.sequence = i, .past = 100, .target = i % 4 == 0 ? 900U : 101U, .decoding = i % 4 != 0});
  }
  for (auto _ : state) benchmark::DoNotOptimize(plan_batch(candidates, {}));
}
BENCHMARK(plan_64_sequences);

void text_of_a_token(benchmark::State& state) {
  TextStream stream({"STOP", "\n\nUser:"});
  for (auto _ : state) benchmark::DoNotOptimize(stream.push(" token"));
}
BENCHMARK(text_of_a_token);

}  // namespace
}  // namespace caravan::engine
