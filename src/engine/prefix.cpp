#include "engine/prefix.h"

#include <algorithm>
#include <unordered_map>

namespace caravan::engine {
namespace {

std::uint64_t hash_run(std::span<const Token> tokens) {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a over whole tokens; matches are compared token by token after
  for (const Token token : tokens) hash = (hash ^ static_cast<std::uint32_t>(token)) * 0x100000001b3;
  return hash;
}

}  // namespace

std::uint32_t common_prefix(std::span<const Token> a, std::span<const Token> b) {
  const auto [end, _] = std::ranges::mismatch(a, b);
  return static_cast<std::uint32_t>(end - a.begin());
}

std::uint32_t shared_after(std::span<const Token> prompt, std::uint32_t at, std::span<const Token> other,
                           std::uint32_t run) {
  if (prompt.size() < at + run || other.size() < run) return 0;
  // Runs of `other` at multiples of `run`: any common stretch of 2*run-1 tokens holds at least one of them.
  std::unordered_map<std::uint64_t, std::size_t> runs;
  for (std::size_t i = 0; i + run <= other.size(); i += run) runs.emplace(hash_run(other.subspan(i, run)), i);

  std::uint32_t shared = 0;
  std::size_t counted = at;  // tokens before this one are counted already, or are no part of a run
  for (std::size_t i = at; i + run <= prompt.size();) {
    const auto found = runs.find(hash_run(prompt.subspan(i, run)));
    if (found == runs.end() || !std::ranges::equal(prompt.subspan(i, run), other.subspan(found->second, run))) {
      ++i;
      continue;
    }
    std::size_t begin = i;
    std::size_t other_begin = found->second;
    while (begin > counted && other_begin > 0 && prompt[begin - 1] == other[other_begin - 1]) --begin, --other_begin;
    const std::size_t length = common_prefix(prompt.subspan(begin), other.subspan(other_begin));
    shared += static_cast<std::uint32_t>(length);
    counted = i = begin + length;
  }
  return shared;
}

}  // namespace caravan::engine
