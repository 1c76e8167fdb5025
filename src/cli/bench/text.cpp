#include "cli/bench/text.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace caravan::cli::bench {
namespace {

constexpr std::array<std::string_view, 160> vocabulary{
    "the",     "of",     "and",    "to",    "in",    "is",    "that",    "for",   "it",    "as",     "was",    "with",
    "be",      "by",     "on",     "not",   "he",    "this",  "are",     "or",    "his",   "from",   "at",     "which",
    "but",     "have",   "an",     "had",   "they",  "you",   "were",    "their", "one",   "all",    "we",     "can",
    "her",     "has",    "there",  "been",  "if",    "more",  "when",    "will",  "would", "who",    "so",     "no",
    "time",    "people", "water",  "work",  "first", "may",   "down",    "side",  "now",   "find",   "any",    "new",
    "part",    "take",   "get",    "place", "made",  "live",  "where",   "after", "back",  "little", "only",   "round",
    "man",     "year",   "came",   "show",  "every", "good",  "me",      "give",  "our",   "under",  "name",   "very",
    "through", "just",   "form",   "great", "think", "say",   "help",    "low",   "line",  "before", "turn",   "cause",
    "same",    "mean",   "move",   "right", "boy",   "old",   "too",     "does",  "tell",  "set",    "three",  "want",
    "air",     "well",   "also",   "play",  "small", "end",   "put",     "home",  "read",  "hand",   "large",  "add",
    "land",    "here",   "must",   "big",   "high",  "such",  "follow",  "act",   "why",   "ask",    "men",    "change",
    "went",    "light",  "kind",   "off",   "need",  "house", "picture", "try",   "us",    "again",  "animal", "point",
    "mother",  "world",  "near",   "build", "self",  "earth", "father",  "head",  "stand", "own",    "page",   "should",
    "country", "found",  "answer", "school"};

// One of them adds one token to nearly any text with nearly any tokenizer.
constexpr std::array<std::string_view, 10> fillers{" a", ".", " I", "!", " the", ",", " x", "\n", "?", "~"};

}  // namespace

std::string words(std::uint64_t seed, std::size_t count) {
  Dice dice(seed);
  std::string out;
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) out += ' ';
    out += vocabulary[dice.below(vocabulary.size())];
  }
  return out;
}

std::string estimated_text(const TextPlan& plan) {
  // These words are common enough to be one token each in large vocabularies.
  return words(plan.seed, std::max<std::size_t>(1, plan.tokens));
}

TextFitter::TextFitter(const TextPlan& plan) : plan_(plan) { try_words(plan.tokens); }

void TextFitter::try_words(std::size_t count) {
  words_ = count;
  candidate_ = words(plan_.seed, count);
}

bool TextFitter::count(std::size_t tokens) {
  exact_ = tokens == plan_.tokens;
  if (exact_ || ++attempts_ >= attempts_max) return true;
  if (filling_) {
    if (tokens == base_tokens_ + 1) {
      base_ = candidate_;
      base_tokens_ = tokens;
      filler_ = 0;
    }
    return !try_filler();
  }
  if (tokens < plan_.tokens) {
    enough_ = words_;
    enough_tokens_ = tokens;
  } else {
    too_many_ = words_;
  }
  if (too_many_ != enough_ + 1) {
    // As many words more or less as the count so far says, kept between the bounds that are known.
    const double words_per_token = tokens == 0 ? 1 : static_cast<double>(words_) / static_cast<double>(tokens);
    auto next = static_cast<std::size_t>(words_per_token * plan_.tokens);
    next = std::max(next, enough_ + 1);
    if (too_many_ > 0) next = std::min(next, too_many_ - 1);
    try_words(next);
    return false;
  }
  filling_ = true;
  base_ = words(plan_.seed, enough_);
  base_tokens_ = enough_tokens_;
  return !try_filler();
}

bool TextFitter::try_filler() {
  if (filler_ == fillers.size()) {
    candidate_ = base_;
    return false;
  }
  candidate_ = base_ + std::string(fillers[filler_++]);
  return true;
}

}  // namespace caravan::cli::bench
