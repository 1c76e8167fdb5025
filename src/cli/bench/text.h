// Plain English-looking text of an exact number of tokens, whatever the tokenizer: it is told the count of each
// candidate and makes the next. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "cli/bench/scenario.h"

namespace caravan::cli::bench {

// The first `count` words of the seed's endless text.
std::string words(std::uint64_t seed, std::size_t count);
// For servers that do not count: about as many tokens as wanted.
std::string estimated_text(const TextPlan& plan);

class TextFitter {
 public:
  explicit TextFitter(const TextPlan& plan);

  [[nodiscard]] const std::string& candidate() const { return candidate_; }
  // `tokens` is what the tokenizer makes of candidate(). True: done, candidate() is the text.
  bool count(std::size_t tokens);
  [[nodiscard]] bool exact() const { return exact_; }

  static constexpr int attempts_max = 200;

 private:
  void try_words(std::size_t count);
  bool try_filler();

  TextPlan plan_;
  std::string candidate_;
  std::size_t words_ = 0;   // in the candidate while the number of words is sought
  std::size_t enough_ = 0;  // this many words are not too many
  std::size_t enough_tokens_ = 0;
  std::size_t too_many_ = 0;  // this many are; 0: not known yet
  std::string base_;          // while filling up: what is sure
  std::size_t base_tokens_ = 0;
  std::size_t filler_ = 0;  // the next to try; fillers differ in what they merge with
  bool filling_ = false;
  bool exact_ = false;
  int attempts_ = 0;
};

}  // namespace caravan::cli::bench
