#include "cli/bench/scenario.h"

#include <cmath>
#include <set>

namespace caravan::cli::bench {

std::uint64_t Dice::next() {  // splitmix64
  state_ += 0x9E3779B97F4A7C15ULL;
  std::uint64_t x = state_;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

double Dice::unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
std::uint64_t Dice::below(std::uint64_t bound) { return next() % bound; }
double Dice::exponential(double rate) { return -std::log(1 - unit()) / rate; }

std::string name_of(ScenarioKind kind) {
  switch (kind) {
    case ScenarioKind::shared_prefix:
      return "shared-prefix";
    case ScenarioKind::multi_turn:
      return "multi-turn";
    case ScenarioKind::long_doc:
      return "long-doc";
    case ScenarioKind::all_unique:
      return "all-unique";
  }
  return {};
}

ScenarioOptions with_defaults(ScenarioOptions options) {
  std::uint32_t prefix = 0;
  std::uint32_t turns = 0;
  switch (options.kind) {
    case ScenarioKind::shared_prefix:
      prefix = 2000, turns = 1;
      break;
    case ScenarioKind::multi_turn:
      prefix = 200, turns = 5;
      break;
    case ScenarioKind::long_doc:
      prefix = 4000, turns = 3;
      break;
    case ScenarioKind::all_unique:
      prefix = 500, turns = 1;
      break;
  }
  if (options.prefix_tokens == 0) options.prefix_tokens = prefix;
  if (options.turns == 0) options.turns = turns;
  return options;
}

Scenario make_scenario(const ScenarioOptions& given, std::uint32_t round) {
  Scenario scenario;
  scenario.options = with_defaults(given);
  const auto& options = scenario.options;
  scenario.history = options.kind == ScenarioKind::shared_prefix || options.kind == ScenarioKind::multi_turn;

  Dice dice(options.seed * 1'000'003 + round);
  const auto text = [&](std::uint32_t tokens) { return TextPlan{dice.next(), tokens}; };
  const TextPlan shared = text(options.prefix_tokens);
  for (std::uint32_t u = 0; u < options.users; ++u) {
    UserPlan user;
    const TextPlan own = text(options.prefix_tokens);
    for (std::uint32_t w = 0; w < options.waves; ++w) {
      if (w > 0 && options.wave_kind == WaveKind::repeat) {
        user.waves.push_back(user.waves.front());
        continue;
      }
      std::vector<Turn> turns;
      for (std::uint32_t t = 0; t < options.turns; ++t) {
        TextPlan system = shared;
        if (options.kind == ScenarioKind::long_doc) system = own;
        if (options.kind == ScenarioKind::all_unique) system = text(options.prefix_tokens);
        turns.push_back({system, text(options.question_tokens)});
      }
      user.waves.push_back(std::move(turns));
    }
    scenario.users.push_back(std::move(user));
  }
  for (std::uint32_t w = 0; w < options.waves; ++w) {
    double at = 0;
    for (auto& user : scenario.users) {
      if (options.rate > 0) at += dice.exponential(options.rate);
      user.arrivals.push_back(std::chrono::duration_cast<Duration>(std::chrono::duration<double>(at)));
    }
  }
  return scenario;
}

std::vector<TextPlan> texts_of(const Scenario& scenario) {
  std::set<TextPlan> texts;
  for (const auto& user : scenario.users) {
    for (const auto& wave : user.waves) {
      for (const auto& turn : wave) texts.insert({turn.system, turn.question});
    }
  }
  return {texts.begin(), texts.end()};
}

}  // namespace caravan::cli::bench
