// What `caravan bench` can be told.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cli/bench/scenario.h"
#include "cli/option_table.h"

namespace caravan::cli::bench {

struct BenchOptions {
  ScenarioOptions scenario;
  std::uint32_t rounds = 1;
  std::uint64_t seed = 0;  // 0: drawn

  std::string url = "http://127.0.0.1:8080";
  std::string compare_url;
  std::optional<std::string> serve;  // flags of a `caravan serve` that is started for the run
  std::optional<std::string> compare_serve;
  std::string serve_model;  // for both of them; empty: the demo model

  std::string api_key;
  std::string model;  // empty: the first that the server names
  bool stream = true;
  bool ignore_eos = true;
  double temperature = 0;
  Duration timeout = std::chrono::minutes(10);
  bool json = false;
};

OptionTable bench_table(BenchOptions& options);
// What no single option can check. Errors: one line.
Status validate(const BenchOptions& options);

// Words of a line as a shell splits them: blanks part, quotes keep together. Errors: a quote that is not closed.
Result<std::vector<std::string>> split_words(std::string_view line);

}  // namespace caravan::cli::bench
