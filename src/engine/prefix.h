// Which of the token lists at hand begins like a prompt, and how far. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "engine/request.h"

namespace caravan::engine {

// Length of the common beginning of two token lists.
std::uint32_t common_prefix(std::span<const Token> a, std::span<const Token> b);

// How many tokens of `prompt` from `at` on stand in `other` too, counted in runs of at least `run` tokens: what a
// prompt would have shared had its front not changed (a counter, a date).
std::uint32_t shared_after(std::span<const Token> prompt, std::uint32_t at, std::span<const Token> other,
                           std::uint32_t run = 16);

}  // namespace caravan::engine
