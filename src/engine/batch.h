// What one step decodes. Pure.
//
// Every decoding sequence gets its one token, so nobody's stream stalls; what is left of the batch goes to prefills in
// the order of their admission. While others decode, a prefill advances by chunks of bounded time (CASES: a stream's
// gap stays within about two chunks); alone, by whole batches. Chunks end at multiples of a block where they can, so
// that the same prompt is cut at the same places each time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace caravan::engine {

struct BatchCandidate {
  std::uint32_t sequence = 0;
  std::uint32_t past = 0;                // tokens decoded
  std::uint32_t target = 0;              // tokens to be decoded; more than `past`
  std::optional<std::uint32_t> stop_at;  // a position to stop at exactly, where another sequence branches off
  bool decoding = false;                 // its prompt is done: exactly one token is to be decoded
};

struct BatchLimits {
  std::uint32_t batch_tokens = 2048;
  std::uint32_t chunk_tokens = 256;  // for all prefills together while anything decodes
  std::uint32_t block_tokens = 64;
};

struct BatchPart {
  std::uint32_t sequence = 0;
  std::uint32_t begin = 0;  // first position
  std::uint32_t count = 0;
  bool output = false;  // logits wanted for the last token: it is the target
};

// `candidates` in order of admission. Parts come in the same order; their counts sum up to at most batch_tokens.
std::vector<BatchPart> plan_batch(std::span<const BatchCandidate> candidates, const BatchLimits& limits);

// The chunk for prefills beside decoding sequences: the largest of 1, 2, 4, ... blocks (at most `most`) that takes at
// most `time_max` seconds at `tokens_per_second`. From a fixed ladder, so that chunk bounds repeat.
std::uint32_t choose_chunk(double tokens_per_second, double time_max, std::uint32_t block_tokens, std::uint32_t most);

}  // namespace caravan::engine
