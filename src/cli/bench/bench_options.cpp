#include "cli/bench/bench_options.h"

#include <limits>

#include "cli/bench/http_client.h"

namespace caravan::cli::bench {
namespace {

constexpr std::int64_t tokens_max = 10'000'000;

void add_scenario_options(OptionTable& table, BenchOptions& options) {
  auto& scenario = options.scenario;
  table.group("Scenario");
  table.add({.name = "users",
             .aliases = {"-u"},
             .binding = integer(scenario.users, 1, 10'000),
             .help = "users, each with one request at a time",
             .flag_only = true});
  table.add({.name = "prefix",
             .binding = integer(scenario.prefix_tokens, 1, tokens_max, "auto"),
             .help = "tokens of the system prompt or document",
             .details = "auto: 2000 for shared-prefix, 200 for multi-turn, 4000 for long-doc, 500 for all-unique.",
             .flag_only = true});
  table.add({.name = "question",
             .binding = integer(scenario.question_tokens, 1, tokens_max),
             .help = "tokens of each question",
             .flag_only = true});
  table.add({.name = "answer",
             .binding = integer(scenario.answer_tokens, 1, tokens_max),
             .help = "tokens of each answer",
             .flag_only = true});
  table.add({.name = "turns",
             .binding = integer(scenario.turns, 1, 10'000, "auto"),
             .help = "questions of a user in one wave",
             .details = "auto: 5 for multi-turn, 3 for long-doc, else 1.",
             .flag_only = true});
  table.add({.name = "waves",
             .binding = integer(scenario.waves, 1, 1000),
             .help = "times that the same users come again",
             .flag_only = true});
  table.add({.name = "wave",
             .binding = choice(scenario.wave_kind, {{"follow-up", WaveKind::follow_up}, {"repeat", WaveKind::repeat}}),
             .help = "what users do when they come again",
             .details = "follow-up: new questions behind their history. repeat: the same requests once more.",
             .flag_only = true});
  table.add({.name = "rounds",
             .binding = integer(options.rounds, 1, 1000),
             .help = "times that all of it is done, with other texts",
             .flag_only = true});
  table.add({.name = "rate",
             .binding = number(scenario.rate, 0, 1e6),
             .help = "users that arrive in a second (Poisson); 0: all at once",
             .flag_only = true});
  table.add({.name = "think",
             .binding = duration(scenario.think),
             .help = "pause between an answer and the next question",
             .flag_only = true});
  Binding seed = integer(options.seed, 1, std::numeric_limits<std::int64_t>::max(), "auto");
  seed.default_text = "drawn";
  table.add({.name = "seed",
             .binding = std::move(seed),
             .help = "decides texts and arrivals",
             .details = "A server that has seen a seed's texts before has them cached, so each run draws its own.",
             .flag_only = true});
}

void add_target_options(OptionTable& table, BenchOptions& options) {
  table.group("Servers");
  table.add({.name = "url",
             .binding = text(options.url, "URL"),
             .help = "server to load; any OpenAI-compatible one",
             .flag_only = true});
  table.add({.name = "compare",
             .binding = text(options.compare_url, "URL"),
             .help = "a second server, turn about with the first",
             .details = "Each wave runs on one and then on the other, so that only one is loaded at a time.",
             .flag_only = true});
  table.add({.name = "serve",
             .binding = text(options.serve, "FLAGS"),
             .help = "start caravan serve with these flags instead of --url",
             .details = "On a free port, stopped at the end. An empty text means no flags.",
             .flag_only = true});
  table.add({.name = "compare-serve",
             .binding = text(options.compare_serve, "FLAGS"),
             .help = "the same instead of --compare",
             .flag_only = true});
  table.add({.name = "serve-model",
             .aliases = {"-m"},
             .binding = text(options.serve_model, "PATH"),
             .help = "model of the servers that are started",
             .details = "Default: the demo model.",
             .flag_only = true});
}

void add_request_options(OptionTable& table, BenchOptions& options) {
  table.group("Requests");
  Binding key = text(options.api_key, "KEY");
  key.secret = true;
  table.add({.name = "api-key", .binding = std::move(key), .help = "key to send"});
  table.add({.name = "model",
             .binding = text(options.model, "NAME"),
             .help = "model to ask for",
             .details = "Default: the first one that the server names.",
             .flag_only = true});
  table.add({.name = "stream",
             .binding = switched(options.stream),
             .help = "stream answers; off: no TTFT and ITL",
             .flag_only = true});
  table.add({.name = "ignore-eos",
             .binding = switched(options.ignore_eos),
             .help = "ask for answers of exactly --answer tokens",
             .details = "Servers that do not know the field may refuse it; then say --no-ignore-eos.",
             .flag_only = true});
  table.add({.name = "temperature",
             .binding = number(options.temperature, 0, 2),
             .help = "sampling temperature",
             .flag_only = true});
  table.add({.name = "timeout",
             .binding = duration(options.timeout),
             .help = "longest wait for one answer",
             .flag_only = true});
  table.add({.name = "json", .binding = switched(options.json), .help = "print JSON", .flag_only = true});
}

}  // namespace

OptionTable bench_table(BenchOptions& options) {
  OptionTable table(
      {.name = "bench",
       .summary = "Put load on any OpenAI-compatible server and measure what its users notice.",
       .examples = {{"caravan bench shared-prefix --url http://127.0.0.1:8080 --users 10 --prefix 2000 --waves 2",
                     "ten users with one system prompt, twice"},
                    {"caravan bench shared-prefix -m model.gguf --serve '' --compare-serve '--no-kv-cache'",
                     "what sharing saves: two servers are started and take turns"},
                    {"caravan bench multi-turn --url http://a:8080 --compare http://b:8080 --rounds 3",
                     "two servers that run, in fair pairs"},
                    {"caravan bench all-unique --users 100 --rate 5 --json",
                     "Poisson arrivals, figures for a program"}},
       .notes =
           "Time starts when the connection stands. TTFT ends with the first text, ITL is the time between pieces of "
           "text. Texts have exact token counts where the server offers /tokenize. Exit code 1 if any request "
           "failed. Peak KV cells are those since the server started: run against fresh servers."});
  table.add(Positional{.name = "SCENARIO",
                       .binding = choice(options.scenario.kind, {{"shared-prefix", ScenarioKind::shared_prefix},
                                                                 {"multi-turn", ScenarioKind::multi_turn},
                                                                 {"long-doc", ScenarioKind::long_doc},
                                                                 {"all-unique", ScenarioKind::all_unique}})});
  add_scenario_options(table, options);
  add_target_options(table, options);
  add_request_options(table, options);
  return table;
}

Status validate(const BenchOptions& options) {
  if (const auto url = parse_url(options.url); !url)
    return fail(ErrorCode::invalid_argument, "--url {}", url.error().message);
  if (!options.compare_url.empty()) {
    if (const auto url = parse_url(options.compare_url); !url) {
      return fail(ErrorCode::invalid_argument, "--compare {}", url.error().message);
    }
    if (options.compare_serve) {
      return fail(ErrorCode::invalid_argument, "--compare and --compare-serve both name the second server; give one");
    }
  }
  if (!options.serve_model.empty() && !options.serve && !options.compare_serve) {
    return fail(ErrorCode::invalid_argument, "-m {} is for servers that are started; give --serve too",
                options.serve_model);
  }
  for (const auto* flags : {&options.serve, &options.compare_serve}) {
    if (!*flags) continue;
    if (const auto words = split_words(**flags); !words) return std::unexpected(words.error());
  }
  return {};
}

Result<std::vector<std::string>> split_words(std::string_view line) {
  std::vector<std::string> words;
  bool inside = false;
  char quote = 0;
  for (const char c : line) {
    if (quote != 0) {
      if (c == quote) {
        quote = 0;
      } else {
        words.back() += c;
      }
      continue;
    }
    if (c == ' ' || c == '\t' || c == '\n') {
      inside = false;
      continue;
    }
    if (!std::exchange(inside, true)) words.emplace_back();
    if (c == '\'' || c == '"') {
      quote = c;
    } else {
      words.back() += c;
    }
  }
  if (quote != 0) return fail(ErrorCode::invalid_argument, "{}: a quote is not closed", line);
  return words;
}

}  // namespace caravan::cli::bench
