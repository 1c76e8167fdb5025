#include "cli/bench/report.h"

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <gtest/gtest.h>

namespace caravan::cli::bench {
namespace {

Record answered(double ttft_ms, std::uint32_t prompt, std::uint32_t cached, std::uint32_t history) {
  Record record;
  record.ttft_ms = ttft_ms;
  record.total_ms = ttft_ms + 100;
  record.gaps_ms = {10, 20};
  record.prompt_tokens = prompt;
  record.completion_tokens = 64;
  record.cached_tokens = cached;
  record.history_tokens = history;
  return record;
}

Record failed(const std::string& why) {
  Record record;
  record.error = why;
  return record;
}

ServerRun run(const std::string& label, double ttft_ms, std::uint32_t cached) {
  ServerRun out{.label = label, .where = "http://" + label, .model = "m", .waves = {}, .peak_cells = 1000};
  out.waves.push_back({.round = 0, .wave = 0, .seconds = 2, .records = {answered(ttft_ms, 100, 0, 0)}});
  out.waves.push_back({.round = 0, .wave = 1, .seconds = 3, .records = {answered(ttft_ms, 200, cached, 160)}});
  return out;
}

BenchOptions two_waves() {
  BenchOptions options;
  options.scenario.users = 1;
  options.scenario.waves = 2;
  options.seed = 5;
  return options;
}

TEST(Report, AddsUpWavesAndCountsOnlyWhatWentWell) {
  ServerRun server = run("A", 50, 150);
  server.waves[1].records.push_back(failed("status 500"));
  const Figures all = figures_of(server, 64, std::nullopt);
  EXPECT_EQ(all.requests, 3U);
  EXPECT_EQ(all.failed, 1U);
  EXPECT_EQ(all.prompt_tokens, 300U);
  EXPECT_DOUBLE_EQ(all.cached_part().value(), 0.5);
  EXPECT_DOUBLE_EQ(all.history_cached_part().value(), 150.0 / 160.0);
  EXPECT_DOUBLE_EQ(all.seconds, 5);
  EXPECT_DOUBLE_EQ(all.tokens_per_second(), 128.0 / 5);
  EXPECT_EQ(all.ttft_ms.count, 2U);
  EXPECT_EQ(all.itl_ms.count, 4U);
  EXPECT_EQ(all.other_length, 0U);
  EXPECT_EQ(figures_of(server, 65, std::nullopt).other_length, 2U);
  const Figures second = figures_of(server, 64, 1);
  EXPECT_DOUBLE_EQ(second.cached_part().value(), 0.75);
  EXPECT_EQ(second.requests, 2U);
}

TEST(Report, ACacheThatIsNotReportedIsNotZero) {
  ServerRun server = run("A", 50, 150);
  for (auto& wave : server.waves) {
    for (auto& record : wave.records) record.cached_tokens.reset();
  }
  EXPECT_EQ(figures_of(server, 64, std::nullopt).cached_part(), std::nullopt);
  EXPECT_NE(report_text(two_waves(), {}, {server}).find(" - "), std::string::npos);
}

TEST(Report, ComparesTheSecondWithTheFirst) {
  const std::vector<ServerRun> runs{run("A", 50, 150), run("B", 500, 0)};
  const std::string text = report_text(two_waves(), {}, runs);
  EXPECT_NE(text.find("B / A"), std::string::npos) << text;
  const auto rows = compare(two_waves(), runs);
  ASSERT_FALSE(rows.empty());
  EXPECT_EQ(rows[0].json_name, "ttft_ms_mean");
  EXPECT_DOUBLE_EQ(rows[0].b / rows[0].a, 10);
}

TEST(Report, JsonHasTheSameFigures) {
  const std::vector<ServerRun> runs{run("A", 50, 150), run("B", 500, 0)};
  const auto report = boost::json::parse(report_json(two_waves(), {}, runs));
  const auto& first = report.at("servers").at(0);
  EXPECT_EQ(first.at("all").at("prompt_tokens").as_int64(), 300);
  EXPECT_EQ(first.at("waves").as_array().size(), 2U);
  EXPECT_EQ(first.at("waves").at(1).at("cached_part").as_double(), 0.75);
  EXPECT_TRUE(first.at("waves").at(0).at("history_cached_part").is_null());
  EXPECT_DOUBLE_EQ(report.at("compared").at("ttft_ms_mean").at("b_over_a").as_double(), 10);
  EXPECT_EQ(report.at("scenario").at("seed").as_int64(), 5);
}

TEST(Report, ErrorsAndOddAnswersAreSaid) {
  ServerRun server = run("A", 50, 0);
  server.waves[0].records.push_back(failed("status 429: queue full"));
  server.waves[0].records.push_back(failed("status 429: queue full"));
  server.waves[1].records[0].completion_tokens = 3;
  Texts texts;
  texts.estimated = true;
  const std::string text = report_text(two_waves(), texts, {server});
  for (const char* part : {"A: 2 failed: status 429: queue full", "1 of 2 answers are not 64 tokens long",
                           "no /tokenize", "peak KV cells: 1000"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << " in\n" << text;
  }
}

}  // namespace
}  // namespace caravan::cli::bench
