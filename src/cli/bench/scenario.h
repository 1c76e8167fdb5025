// Who asks what, and when: decided before anything is sent, from a seed. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace caravan::cli::bench {

enum class ScenarioKind {
  shared_prefix,  // one system prompt for all users
  multi_turn,     // the same, and conversations that grow
  long_doc,       // a document for each user, and questions on it that stand alone
  all_unique,     // nothing in common, ever
};

enum class WaveKind {
  follow_up,  // new questions behind what was said before
  repeat,     // the same requests again
};

struct ScenarioOptions {
  ScenarioKind kind = ScenarioKind::shared_prefix;
  std::uint32_t users = 10;
  std::uint32_t prefix_tokens = 0;  // of the system prompt or document; 0: the scenario's own
  std::uint32_t question_tokens = 64;
  std::uint32_t answer_tokens = 64;
  std::uint32_t turns = 0;  // questions of a user in one wave; 0: the scenario's own
  std::uint32_t waves = 1;
  WaveKind wave_kind = WaveKind::follow_up;
  double rate = 0;   // users that arrive in a second (open loop); 0: all at once
  Duration think{};  // between an answer and the user's next question
  std::uint64_t seed = 1;
};

// Stands for one text: the same seed is the same text.
struct TextPlan {
  std::uint64_t seed = 0;
  std::uint32_t tokens = 0;
  auto operator<=>(const TextPlan&) const = default;
};

struct Turn {
  TextPlan system;
  TextPlan question;
  bool operator==(const Turn&) const = default;
};

struct UserPlan {
  std::vector<std::vector<Turn>> waves;
  std::vector<Duration> arrivals;  // from each wave's start
};

struct Scenario {
  ScenarioOptions options;  // with the scenario's own values filled in
  bool history = false;     // earlier turns are part of the request
  std::vector<UserPlan> users;
};

// The scenario's own prefix and turns where none are given.
ScenarioOptions with_defaults(ScenarioOptions options);
// `round` is mixed into the seed: rounds have nothing in common.
Scenario make_scenario(const ScenarioOptions& options, std::uint32_t round);
std::vector<TextPlan> texts_of(const Scenario& scenario);  // each once

std::string name_of(ScenarioKind kind);

// Numbers from a seed that are the same everywhere (the standard's distributions are not).
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed) {}
  std::uint64_t next();
  double unit();                             // [0, 1)
  std::uint64_t below(std::uint64_t bound);  // [0, bound)
  double exponential(double rate);           // gaps of a Poisson process

 private:
  std::uint64_t state_;
};

}  // namespace caravan::cli::bench
