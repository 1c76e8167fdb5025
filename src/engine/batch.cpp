#include "engine/batch.h"

#include <algorithm>

#include "base/check.h"

namespace caravan::engine {
namespace {

// Where a prefill stops when it may take up to `budget` tokens.
std::uint32_t chunk_end(const BatchCandidate& candidate, std::uint32_t budget, std::uint32_t block_tokens) {
  std::uint32_t end = candidate.target;
  if (end - candidate.past > budget) {
    end = candidate.past + budget;
    const std::uint32_t aligned = end - end % block_tokens;
    if (aligned > candidate.past) end = aligned;
  }
  if (candidate.stop_at && *candidate.stop_at > candidate.past) end = std::min(end, *candidate.stop_at);
  return end;
}

}  // namespace

std::vector<BatchPart> plan_batch(std::span<const BatchCandidate> candidates, const BatchLimits& limits) {
  const auto decoding = static_cast<std::uint32_t>(std::ranges::count_if(candidates, &BatchCandidate::decoding));
  const std::uint32_t room = limits.batch_tokens - std::min(decoding, limits.batch_tokens);
  std::uint32_t for_prefill = decoding > 0 ? std::min(room, limits.chunk_tokens) : room;
  std::uint32_t for_decoding = std::min(decoding, limits.batch_tokens);

  std::vector<BatchPart> parts;
  for (const BatchCandidate& candidate : candidates) {
    CHECK(candidate.past < candidate.target);
    std::uint32_t& budget = candidate.decoding ? for_decoding : for_prefill;
    if (budget == 0) continue;
    const std::uint32_t end =
        candidate.decoding ? candidate.past + 1 : chunk_end(candidate, budget, limits.block_tokens);
    const std::uint32_t count = end - candidate.past;
    budget -= count;
    parts.push_back(
        {.sequence = candidate.sequence, .begin = candidate.past, .count = count, .output = end == candidate.target});
  }
  return parts;
}

std::uint32_t choose_chunk(double tokens_per_second, double time_max, std::uint32_t block_tokens, std::uint32_t most) {
  std::uint32_t chunk = std::min(block_tokens, most);
  const auto fits = [&](std::uint32_t tokens) { return tokens <= most && tokens <= tokens_per_second * time_max; };
  for (std::uint32_t power = block_tokens; fits(power); power *= 2) {
    chunk = power;
    if (power > block_tokens && fits(power + power / 2)) chunk = power + power / 2;
  }
  return chunk;
}

}  // namespace caravan::engine
