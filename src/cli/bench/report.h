// What a run's records come to: figures a wave and altogether, as tables, as JSON, and one server against another.
// Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/bench/bench_options.h"
#include "cli/bench/load.h"
#include "cli/bench/statistics.h"

namespace caravan::cli::bench {

struct ServerRun {
  std::string label;  // "A", "B"
  std::string where;  // URL, or the flags it was started with
  std::string model;
  std::vector<WaveResult> waves;
  std::optional<std::uint64_t> peak_cells;
};

struct Figures {
  std::uint64_t requests = 0;
  std::uint64_t failed = 0;
  double seconds = 0;
  std::uint64_t prompt_tokens = 0;
  std::optional<std::uint64_t> cached_tokens;  // none: the server does not say
  std::uint64_t completion_tokens = 0;
  std::uint64_t history_tokens = 0;         // prompt tokens that the server had seen or made before in the same talk
  std::uint64_t history_cached_tokens = 0;  // of those, cached
  std::uint64_t other_length = 0;           // answers that are not as long as was asked for
  Summary ttft_ms;
  Summary itl_ms;
  Summary total_ms;

  [[nodiscard]] std::optional<double> cached_part() const;
  [[nodiscard]] std::optional<double> history_cached_part() const;
  [[nodiscard]] double tokens_per_second() const;
};

// Of one wave over all rounds, or of everything.
Figures figures_of(const ServerRun& run, std::uint32_t answer_tokens, std::optional<std::uint32_t> wave);

// One figure of two servers.
struct Compared {
  std::string name;  // for people
  std::string json_name;
  double a = 0;
  double b = 0;
};

// Of two runs; figures that neither has are left out.
std::vector<Compared> compare(const BenchOptions& options, const std::vector<ServerRun>& runs);

std::string report_text(const BenchOptions& options, const Texts& texts, const std::vector<ServerRun>& runs);
std::string report_json(const BenchOptions& options, const Texts& texts, const std::vector<ServerRun>& runs);

}  // namespace caravan::cli::bench
