// What one chat request came to: out of the events of its stream, or its one body. Pure; times are given.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"

namespace caravan::cli::bench {

struct Record {
  std::uint32_t round = 0;
  std::uint32_t wave = 0;
  std::uint32_t user = 0;
  std::uint32_t turn = 0;

  std::string error;              // empty: it went well
  std::optional<double> ttft_ms;  // sent -> first text; none without a stream
  double total_ms = 0;            // sent -> last byte
  std::vector<double> gaps_ms;    // between pieces of text
  std::uint32_t prompt_tokens = 0;
  std::uint32_t completion_tokens = 0;
  std::optional<std::uint32_t> cached_tokens;  // none: the server does not say
  bool has_usage = false;                      // false: tokens are counted as pieces of text
  // Prompt and answer of the user's last request, which begin this one; 0 for a first one.
  std::uint32_t history_tokens = 0;
  std::string text;
};

class AnswerReader {
 public:
  explicit AnswerReader(TimePoint sent) : sent_(sent) {}

  void event(std::string_view data, TimePoint now);
  // A whole answer without a stream; also what a server says with another status than 200.
  void body(unsigned status, std::string_view json, TimePoint now);
  void fail(std::string why, TimePoint now);
  // The stream is over.
  void end(TimePoint now);

  [[nodiscard]] const Record& record() const { return record_; }
  [[nodiscard]] Record take() { return std::move(record_); }

 private:
  TimePoint sent_;
  TimePoint last_text_;
  std::uint32_t pieces_ = 0;
  bool done_ = false;
  Record record_;
};

}  // namespace caravan::cli::bench
