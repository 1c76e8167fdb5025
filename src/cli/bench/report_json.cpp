#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>

#include "cli/bench/report.h"

namespace caravan::cli::bench {

namespace json = boost::json;

namespace {

json::value value_of(const Summary& summary) {
  if (summary.count == 0) return nullptr;
  return {{"count", summary.count}, {"mean", summary.mean}, {"p50", summary.p50},
          {"p90", summary.p90},     {"p99", summary.p99},   {"max", summary.max}};
}

template <class Number>
json::value value_of(const std::optional<Number>& number) {
  return number ? json::value(*number) : json::value(nullptr);
}

json::object value_of(const Figures& figures) {
  return {{"requests", figures.requests},
          {"failed", figures.failed},
          {"seconds", figures.seconds},
          {"prompt_tokens", figures.prompt_tokens},
          {"cached_tokens", value_of(figures.cached_tokens)},
          {"cached_part", value_of(figures.cached_part())},
          {"history_cached_part", value_of(figures.history_cached_part())},
          {"completion_tokens", figures.completion_tokens},
          {"tokens_per_second", figures.tokens_per_second()},
          {"answers_of_other_length", figures.other_length},
          {"ttft_ms", value_of(figures.ttft_ms)},
          {"itl_ms", value_of(figures.itl_ms)},
          {"total_ms", value_of(figures.total_ms)}};
}

json::object scenario_value(const BenchOptions& options) {
  const auto scenario = with_defaults(options.scenario);
  return {{"name", name_of(scenario.kind)},
          {"users", scenario.users},
          {"prefix_tokens", scenario.prefix_tokens},
          {"question_tokens", scenario.question_tokens},
          {"answer_tokens", scenario.answer_tokens},
          {"turns", scenario.turns},
          {"waves", scenario.waves},
          {"wave", scenario.wave_kind == WaveKind::repeat ? "repeat" : "follow-up"},
          {"rounds", options.rounds},
          {"users_per_second", scenario.rate},
          {"think_seconds", seconds(scenario.think)},
          {"seed", options.seed}};
}

}  // namespace

std::string report_json(const BenchOptions& options, const Texts& texts, const std::vector<ServerRun>& runs) {
  const std::uint32_t answer = options.scenario.answer_tokens;
  json::array servers;
  for (const auto& run : runs) {
    json::array waves;
    for (std::uint32_t w = 0; w < options.scenario.waves; ++w) waves.push_back(value_of(figures_of(run, answer, w)));
    json::array errors;
    for (const auto& wave : run.waves) {
      for (const auto& record : wave.records) {
        if (!record.error.empty()) errors.emplace_back(record.error);
      }
    }
    servers.push_back({{"label", run.label},
                       {"where", run.where},
                       {"model", run.model},
                       {"all", value_of(figures_of(run, answer, std::nullopt))},
                       {"waves", std::move(waves)},
                       {"cells_peak", value_of(run.peak_cells)},
                       {"errors", std::move(errors)}});
  }
  json::object report{
      {"scenario", scenario_value(options)}, {"prompts_exact", texts.inexact == 0}, {"servers", std::move(servers)}};
  if (runs.size() == 2) {
    json::object ratios;
    for (const auto& row : compare(options, runs)) {
      ratios[row.json_name] = {
          {"a", row.a}, {"b", row.b}, {"b_over_a", row.a > 0 ? json::value(row.b / row.a) : nullptr}};
    }
    report["compared"] = std::move(ratios);
  }
  return json::serialize(report) + '\n';
}

}  // namespace caravan::cli::bench
