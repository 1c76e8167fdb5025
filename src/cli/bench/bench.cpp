#include "cli/bench/bench.h"

#include <cstdio>
#include <memory>
#include <random>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>

#include "cli/bench/bench_options.h"
#include "cli/bench/child_server.h"
#include "cli/bench/load.h"
#include "cli/bench/report.h"
#include "cli/bench/target.h"
#include "cli/progress.h"

namespace caravan::cli {

namespace asio = boost::asio;
using namespace bench;

namespace {

constexpr auto start_patience = std::chrono::minutes(10);  // a large model on a slow disk

// Where the load goes: a server that runs already, or one that is started here.
struct Place {
  std::string where;
  std::string url;
};

Result<Place> start_server(const Invocation& invocation, const BenchOptions& options, const std::string& flags,
                           std::vector<ChildServer>& children, ProgressLine& line) {
  std::vector<std::string> words;
  if (!options.serve_model.empty()) words = {"-m", options.serve_model};
  const auto given = split_words(flags);
  if (!given) return std::unexpected(given.error());
  words.insert(words.end(), given->begin(), given->end());
  line.show("starting caravan serve " + flags);
  auto child = ChildServer::start(invocation.program, words, start_patience);
  if (!child) return std::unexpected(child.error());
  children.push_back(std::move(*child));
  return Place{.where = flags.empty() ? "caravan serve" : "caravan serve " + flags, .url = children.back().url()};
}

Result<std::vector<Place>> find_places(const Invocation& invocation, const BenchOptions& options,
                                       std::vector<ChildServer>& children, ProgressLine& line) {
  std::vector<Place> places;
  const auto add = [&](const std::string& url, const std::optional<std::string>& flags) -> Status {
    if (!flags) {
      places.push_back({url, url});
      return {};
    }
    auto place = start_server(invocation, options, *flags, children, line);
    if (!place) return std::unexpected(place.error());
    places.push_back(std::move(*place));
    return {};
  };
  if (const Status status = add(options.url, options.serve); !status) return std::unexpected(status.error());
  if (!options.compare_url.empty() || options.compare_serve) {
    if (const Status status = add(options.compare_url, options.compare_serve); !status) {
      return std::unexpected(status.error());
    }
  }
  return places;
}

struct Outcome {
  std::vector<ServerRun> runs;
  Texts texts;
};

void show_progress(ProgressLine& line, const BenchOptions& options, const std::string& label, const WaveResult& wave,
                   TimePoint start) {
  std::size_t failed = 0;
  std::uint64_t tokens = 0;
  for (const auto& record : wave.records) {
    failed += record.error.empty() ? 0 : 1;
    tokens += record.completion_tokens;
  }
  const auto scenario = with_defaults(options.scenario);
  line.show(fmt::format("{} round {}/{} wave {}/{}: {}/{} requests{}, {} tokens, {:.0f} s", label, wave.round + 1,
                        options.rounds, wave.wave + 1, scenario.waves, wave.records.size(),
                        scenario.users * scenario.turns, failed > 0 ? fmt::format(" ({} failed)", failed) : "", tokens,
                        seconds(Clock::now() - start)));
}

asio::awaitable<Status> run_round(asio::io_context& context, const BenchOptions& options,
                                  std::vector<std::unique_ptr<Target>>& targets, std::uint32_t round,
                                  ProgressLine& line, Outcome& outcome) {
  const Scenario scenario = make_scenario(options.scenario, round);
  const auto plans = texts_of(scenario);
  std::function<void(std::size_t)> made = [&](std::size_t count) {
    line.show(fmt::format("making texts: {}/{}", count, plans.size()));
  };
  const auto texts = co_await targets.front()->make_texts(plans, made);
  if (!texts) co_return std::unexpected(texts.error());
  outcome.texts.inexact += texts->inexact;
  outcome.texts.estimated = outcome.texts.estimated || texts->estimated;

  std::vector<std::unique_ptr<Load>> loads;
  loads.reserve(targets.size());
  for (const auto& target : targets) {
    loads.push_back(std::make_unique<Load>(context, *target, scenario, *texts, round));
  }
  for (std::uint32_t wave = 0; wave < options.scenario.waves; ++wave) {
    for (std::size_t i = 0; i < loads.size(); ++i) {
      std::function<void(const WaveResult&)> progress;
      if (line.visible()) {
        progress = [&, label = targets[i]->label(), start = Clock::now()](const WaveResult& result) {
          show_progress(line, options, label, result, start);
        };
      }
      auto result = co_await loads[i]->run_wave(wave, progress);
      outcome.runs[i].waves.push_back(std::move(result));
    }
  }
  co_return Status();
}

asio::awaitable<Status> run_all(asio::io_context& context, const BenchOptions& options,
                                const std::vector<Place>& places, ProgressLine& line, Outcome& outcome) {
  std::vector<std::unique_ptr<Target>> targets;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::string label = i == 0 ? "A" : "B";
    auto url = parse_url(places[i].url);
    if (!url) co_return std::unexpected(url.error());
    targets.push_back(std::make_unique<Target>(context, label, std::move(*url), options));
    const Status met = co_await targets.back()->meet();
    if (!met) co_return std::unexpected(met.error());
    outcome.runs.push_back({.label = label,
                            .where = places[i].where,
                            .model = targets.back()->model(),
                            .waves = {},
                            .peak_cells = std::nullopt});
  }
  for (std::uint32_t round = 0; round < options.rounds; ++round) {
    const Status status = co_await run_round(context, options, targets, round, line, outcome);
    if (!status) co_return std::unexpected(status.error());
  }
  for (std::size_t i = 0; i < targets.size(); ++i) {
    outcome.runs[i].peak_cells = co_await targets[i]->peak_cells();
  }
  co_return Status();
}

bool any_failed(const std::vector<ServerRun>& runs) {
  for (const auto& run : runs) {
    for (const auto& wave : run.waves) {
      for (const auto& record : wave.records) {
        if (!record.error.empty()) return true;
      }
    }
  }
  return false;
}

}  // namespace

int run_bench(const Invocation& invocation) {
  BenchOptions options;
  if (const auto code = read_options(bench_table(options), invocation)) return *code;
  if (const Status status = validate(options); !status) return usage_error(status.error());
  if (options.seed == 0) options.seed = std::random_device()();
  options.scenario.seed = options.seed;

  ProgressLine line;
  std::vector<ChildServer> children;
  const auto places = find_places(invocation, options, children, line);
  if (!places) {
    line.clear();
    return failure(places.error());
  }
  asio::io_context context(1);
  Outcome outcome;
  Status status;
  asio::co_spawn(context, run_all(context, options, *places, line, outcome),
                 [&](const std::exception_ptr& problem, Status ended) {
                   if (problem) std::rethrow_exception(problem);
                   status = std::move(ended);
                 });
  context.run();
  line.clear();
  if (!status) return failure(status.error());
  const std::string report = options.json ? report_json(options, outcome.texts, outcome.runs)
                                          : report_text(options, outcome.texts, outcome.runs);
  std::fwrite(report.data(), 1, report.size(), stdout);
  std::fflush(stdout);
  return any_failed(outcome.runs) ? exit_failed : exit_fine;
}

std::string bench_help(HelpStyle style) {
  BenchOptions options;
  return bench_table(options).help(style);
}

}  // namespace caravan::cli
