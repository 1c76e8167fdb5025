// What a frame costs beside copying it: sealing, opening, zstd. A block of a 24-layer model with 4 KV heads of 64 in
// f16.

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/check.h"
#include "kv/block_format.h"

namespace caravan::kv {
namespace {

constexpr std::size_t block_tokens = 64;
constexpr std::size_t payload_bytes = std::size_t{24} * 2 * block_tokens * 4 * 64 * 2;

// As many as no cache holds: blocks come from memory.
constexpr std::size_t frames_in_turn = 64;

struct Sample {
  FrameHeader header;
  std::vector<std::byte> frame;
};

// Numbers as KV has them: 16-bit floats (here the upper halves of 32-bit ones), normal around 0.
Sample sample() {
  FrameHeader header{
      .raw_bytes = payload_bytes, .stored_bytes = payload_bytes, .tokens = std::vector<Token>(block_tokens)};
  std::iota(header.tokens.begin(), header.tokens.end(), 1000);
  header.id = block_id(header.parent, header.tokens);
  std::vector<std::byte> frame(frame_bytes(block_tokens, payload_bytes));
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (std::size_t at = header_bytes(block_tokens); at < frame.size(); at += 2) {
    const auto value = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(normal(random)) >> 16U);
    std::memcpy(frame.data() + at, &value, sizeof(value));
  }
  seal_frame(frame, header);
  return {.header = std::move(header), .frame = std::move(frame)};
}

std::vector<std::vector<std::byte>> copies_of(const Sample& block) { return {frames_in_turn, block.frame}; }

void count_bytes(benchmark::State& state) {
  state.SetBytesProcessed(static_cast<std::int64_t>(state.iterations() * payload_bytes));
}

void frame_memcpy(benchmark::State& state) {
  const auto from = copies_of(sample());
  auto to = from;
  std::size_t turn = 0;
  for (auto _ : state) {
    const std::size_t at = turn++ % frames_in_turn;
    std::memcpy(to[at].data(), from[at].data(), to[at].size());
    benchmark::ClobberMemory();
  }
  count_bytes(state);
}
BENCHMARK(frame_memcpy);

void frame_seal(benchmark::State& state) {
  const Sample block = sample();
  auto frames = copies_of(block);
  std::size_t turn = 0;
  for (auto _ : state) {
    seal_frame(frames[turn++ % frames_in_turn], block.header);
    benchmark::ClobberMemory();
  }
  count_bytes(state);
}
BENCHMARK(frame_seal);

void frame_open(benchmark::State& state) {
  const Sample block = sample();
  const auto frames = copies_of(block);
  std::size_t turn = 0;
  for (auto _ : state) {
    CHECK(open_frame(frames[turn++ % frames_in_turn], block.header.namespace_id, block.header.id));
  }
  count_bytes(state);
}
BENCHMARK(frame_open);

void frame_compress(benchmark::State& state) {
  const Sample block = sample();
  std::size_t stored = 0;
  for (auto _ : state) stored = compress_frame(block.frame, static_cast<int>(state.range(0))).size();
  state.counters["ratio"] = static_cast<double>(block.frame.size()) / static_cast<double>(stored);
  count_bytes(state);
}
BENCHMARK(frame_compress)->ArgName("level")->Arg(1)->Arg(3);

void frame_decompress(benchmark::State& state) {
  const Sample block = sample();
  const auto compressed = compress_frame(block.frame, static_cast<int>(state.range(0)));
  const auto opened = open_frame(compressed);
  CHECK(opened);
  for (auto _ : state) CHECK(decompress_frame(*opened, payload_bytes));
  count_bytes(state);
}
BENCHMARK(frame_decompress)->ArgName("level")->Arg(1)->Arg(3);

}  // namespace
}  // namespace caravan::kv
