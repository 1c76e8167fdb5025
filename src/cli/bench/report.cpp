#include "cli/bench/report.h"

#include <algorithm>
#include <map>

#include "cli/table.h"
#include "cli/values.h"

namespace caravan::cli::bench {
namespace {

std::string amount(double value) {
  return value == 0 ? "0" : value < 10 ? fmt::format("{:.2f}", value) : fmt::format("{:.1f}", value);
}
std::string percent(std::optional<double> part) { return part ? fmt::format("{:.1f} %", *part * 100) : "-"; }
std::string count_or_dash(std::optional<std::uint64_t> count) { return count ? std::to_string(*count) : "-"; }

std::string ratio(double a, double b) { return a > 0 && b > 0 ? fmt::format("{:.2f}", b / a) : "-"; }

std::string headline(const BenchOptions& options) {
  const auto scenario = with_defaults(options.scenario);
  std::string out = fmt::format("{}: {} users, prefix {}, question {}, answer {} tokens, {} {}", name_of(scenario.kind),
                                scenario.users, scenario.prefix_tokens, scenario.question_tokens,
                                scenario.answer_tokens, scenario.turns, scenario.turns == 1 ? "turn" : "turns");
  if (scenario.waves > 1) {
    out += fmt::format(", {} waves ({})", scenario.waves,
                       scenario.wave_kind == WaveKind::repeat ? "the same again" : "follow-ups");
  }
  if (options.rounds > 1) out += fmt::format(", {} rounds", options.rounds);
  out += scenario.rate > 0 ? fmt::format(", {} users/s arrive", scenario.rate) : ", all at once";
  return out + fmt::format(", seed {}\n", options.seed);
}

// One row a wave and one for all of them.
std::string work_table(const BenchOptions& options, const std::vector<ServerRun>& runs) {
  Table table({{"server", Align::left},
               {"wave"},
               {"requests"},
               {"failed"},
               {"prompt"},
               {"cached"},
               {"cached %"},
               {"of history"},
               {"answers"},
               {"seconds"},
               {"tokens/s"}});
  for (const auto& run : runs) {
    const auto row = [&](const std::string& wave, const Figures& figures) {
      table.row({run.label, wave, std::to_string(figures.requests), std::to_string(figures.failed),
                 std::to_string(figures.prompt_tokens), count_or_dash(figures.cached_tokens),
                 percent(figures.cached_part()), percent(figures.history_cached_part()),
                 std::to_string(figures.completion_tokens), amount(figures.seconds),
                 amount(figures.tokens_per_second())});
    };
    const std::uint32_t waves = options.scenario.waves;
    for (std::uint32_t w = 0; waves > 1 && w < waves; ++w) {
      row(std::to_string(w + 1), figures_of(run, options.scenario.answer_tokens, w));
    }
    row("all", figures_of(run, options.scenario.answer_tokens, std::nullopt));
  }
  return table.text();
}

std::string latency_table(const BenchOptions& options, const std::vector<ServerRun>& runs) {
  Table table({{"server", Align::left}, {"ms", Align::left}, {"mean"}, {"p50"}, {"p90"}, {"p99"}, {"max"}});
  for (const auto& run : runs) {
    const Figures figures = figures_of(run, options.scenario.answer_tokens, std::nullopt);
    const auto row = [&](const char* what, const Summary& summary) {
      if (summary.count == 0) return;
      table.row({run.label, what, amount(summary.mean), amount(summary.p50), amount(summary.p90), amount(summary.p99),
                 amount(summary.max)});
    };
    row("TTFT", figures.ttft_ms);
    row("ITL", figures.itl_ms);
    row("total", figures.total_ms);
  }
  return table.empty() ? "" : "\n" + table.text();
}

std::string notes(const BenchOptions& options, const Texts& texts, const std::vector<ServerRun>& runs) {
  std::string out;
  if (texts.estimated) {
    out += "token counts of prompts are estimates: the server offers no /tokenize\n";
  } else if (texts.inexact > 0) {
    out +=
        fmt::format("{} texts missed their token count by a little: the tokenizer would not meet it\n", texts.inexact);
  }
  for (const auto& run : runs) {
    if (run.peak_cells && runs.size() == 1) out += fmt::format("peak KV cells: {}\n", *run.peak_cells);
    const Figures figures = figures_of(run, options.scenario.answer_tokens, std::nullopt);
    if (figures.other_length > 0) {
      out += fmt::format(
          "{}: {} of {} answers are not {} tokens long: the server {}\n", run.label, figures.other_length,
          figures.requests - figures.failed, options.scenario.answer_tokens,
          options.ignore_eos ? "does not know ignore_eos, or its context was full" : "was not asked to go on");
    }
    std::map<std::string, std::uint64_t> errors;
    for (const auto& wave : run.waves) {
      for (const auto& record : wave.records) {
        if (!record.error.empty()) ++errors[record.error];
      }
    }
    for (const auto& [error, times] : errors) out += fmt::format("{}: {} failed: {}\n", run.label, times, error);
  }
  return out;
}

}  // namespace

std::optional<double> Figures::cached_part() const {
  if (!cached_tokens || prompt_tokens == 0) return std::nullopt;
  return static_cast<double>(*cached_tokens) / static_cast<double>(prompt_tokens);
}

std::optional<double> Figures::history_cached_part() const {
  if (!cached_tokens || history_tokens == 0) return std::nullopt;
  return static_cast<double>(history_cached_tokens) / static_cast<double>(history_tokens);
}

double Figures::tokens_per_second() const { return seconds > 0 ? static_cast<double>(completion_tokens) / seconds : 0; }

Figures figures_of(const ServerRun& run, std::uint32_t answer_tokens, std::optional<std::uint32_t> wave) {
  Figures figures;
  std::vector<double> ttft;
  std::vector<double> itl;
  std::vector<double> total;
  for (const auto& result : run.waves) {
    if (wave && result.wave != *wave) continue;
    figures.seconds += result.seconds;
    for (const auto& record : result.records) {
      ++figures.requests;
      if (!record.error.empty()) {
        ++figures.failed;
        continue;
      }
      if (record.ttft_ms) ttft.push_back(*record.ttft_ms);
      itl.insert(itl.end(), record.gaps_ms.begin(), record.gaps_ms.end());
      total.push_back(record.total_ms);
      figures.prompt_tokens += record.prompt_tokens;
      figures.completion_tokens += record.completion_tokens;
      if (record.completion_tokens != answer_tokens) ++figures.other_length;
      if (!record.cached_tokens) continue;
      figures.cached_tokens = figures.cached_tokens.value_or(0) + std::min(*record.cached_tokens, record.prompt_tokens);
      figures.history_tokens += record.history_tokens;
      figures.history_cached_tokens += std::min(*record.cached_tokens, record.history_tokens);
    }
  }
  figures.ttft_ms = summarize(std::move(ttft));
  figures.itl_ms = summarize(std::move(itl));
  figures.total_ms = summarize(std::move(total));
  return figures;
}

std::vector<Compared> compare(const BenchOptions& options, const std::vector<ServerRun>& runs) {
  const Figures a = figures_of(runs[0], options.scenario.answer_tokens, std::nullopt);
  const Figures b = figures_of(runs[1], options.scenario.answer_tokens, std::nullopt);
  std::vector<Compared> out;
  const auto add = [&](const char* name, const char* json_name, double left, double right) {
    if (left > 0 || right > 0) out.push_back({name, json_name, left, right});
  };
  add("TTFT mean ms", "ttft_ms_mean", a.ttft_ms.mean, b.ttft_ms.mean);
  add("TTFT p90 ms", "ttft_ms_p90", a.ttft_ms.p90, b.ttft_ms.p90);
  add("TTFT p99 ms", "ttft_ms_p99", a.ttft_ms.p99, b.ttft_ms.p99);
  add("ITL mean ms", "itl_ms_mean", a.itl_ms.mean, b.itl_ms.mean);
  add("ITL p99 ms", "itl_ms_p99", a.itl_ms.p99, b.itl_ms.p99);
  add("total mean ms", "total_ms_mean", a.total_ms.mean, b.total_ms.mean);
  add("all of it, seconds", "seconds", a.seconds, b.seconds);
  add("tokens/s", "tokens_per_second", a.tokens_per_second(), b.tokens_per_second());
  const auto evaluated = [](const Figures& figures) {
    return static_cast<double>(figures.prompt_tokens - figures.cached_tokens.value_or(0));
  };
  if (a.cached_tokens && b.cached_tokens) {
    add("prompt tokens evaluated", "prompt_tokens_evaluated", evaluated(a), evaluated(b));
  }
  if (runs[0].peak_cells && runs[1].peak_cells) {
    add("peak KV cells", "cells_peak", static_cast<double>(*runs[0].peak_cells),
        static_cast<double>(*runs[1].peak_cells));
  }
  return out;
}

std::string report_text(const BenchOptions& options, const Texts& texts, const std::vector<ServerRun>& runs) {
  std::string out = headline(options);
  for (const auto& run : runs) out += fmt::format("{}: {}, model {}\n", run.label, run.where, run.model);
  out += '\n' + work_table(options, runs) + latency_table(options, runs);
  if (runs.size() == 2) {
    Table table({{"", Align::left}, {"A"}, {"B"}, {"B / A"}});
    for (const auto& row : compare(options, runs))
      table.row({row.name, row.a > 0 ? amount(row.a) : "-", row.b > 0 ? amount(row.b) : "-", ratio(row.a, row.b)});
    out += '\n' + table.text();
  }
  const std::string said = notes(options, texts, runs);
  return said.empty() ? out : out + '\n' + said;
}

}  // namespace caravan::cli::bench
