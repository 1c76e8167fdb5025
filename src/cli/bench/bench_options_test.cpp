#include "cli/bench/bench_options.h"

#include <gtest/gtest.h>

namespace caravan::cli::bench {
namespace {

std::string error_of(const std::vector<std::string>& arguments, BenchOptions& options) {
  const auto wanted = bench_table(options).read(arguments, {});
  if (!wanted) return wanted.error().message;
  const Status status = validate(options);
  return status ? "" : status.error().message;
}

TEST(BenchOptions, FillTheScenario) {
  BenchOptions options;
  EXPECT_EQ(error_of({"multi-turn", "-u",      "3",    "--prefix", "200", "--question",  "16",      "--answer",
                      "8",          "--turns", "4",    "--waves",  "2",   "--wave",      "repeat",  "--rate",
                      "2.5",        "--think", "50ms", "--seed",   "9",   "--no-stream", "--serve", "--no-kv-cache"},
                     options),
            "");
  EXPECT_EQ(options.scenario.kind, ScenarioKind::multi_turn);
  EXPECT_EQ(options.scenario.users, 3U);
  EXPECT_EQ(options.scenario.wave_kind, WaveKind::repeat);
  EXPECT_DOUBLE_EQ(options.scenario.rate, 2.5);
  EXPECT_EQ(options.seed, 9U);
  EXPECT_FALSE(options.stream);
  EXPECT_EQ(options.serve, "--no-kv-cache");
}

TEST(BenchOptions, MistakesAreRefused) {
  const auto error = [](const std::vector<std::string>& arguments) {
    BenchOptions options;
    return error_of(arguments, options);
  };
  EXPECT_EQ(error({}), "SCENARIO is missing; see caravan bench -h");
  EXPECT_EQ(error({"shared-prefx"}),
            "SCENARIO shared-prefx: give one of shared-prefix, multi-turn, long-doc, all-unique; did you mean "
            "shared-prefix?");
  EXPECT_EQ(error({"multi-turn", "--url", "localhost"}), "--url localhost: give a URL such as http://127.0.0.1:8080");
  EXPECT_NE(error({"multi-turn", "--compare", "http://a", "--compare-serve", ""}), "");
  EXPECT_NE(error({"multi-turn", "-m", "model.gguf"}), "");
  EXPECT_EQ(error({"multi-turn", "-m", "model.gguf", "--serve", ""}), "");
  EXPECT_NE(error({"multi-turn", "--serve", "-a 'x"}), "");
  EXPECT_NE(error({"multi-turn", "--users", "0"}), "");
}

TEST(SplitWords, AsAShellDoes) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(split_words("").value(), Words{});
  EXPECT_EQ(split_words("  -c 512\t--no-kv-cache ").value(), (Words{"-c", "512", "--no-kv-cache"}));
  EXPECT_EQ(split_words("-a 'two words' x\"y z\"w ''").value(), (Words{"-a", "two words", "xy zw", ""}));
  EXPECT_FALSE(split_words("'open").has_value());
}

}  // namespace
}  // namespace caravan::cli::bench
