// One table of options a command: it feeds the flags, the environment (CARAVAN_*), the TOML file, --help and the docs.
//
// Each option is bound to a field of a typed struct, whose value when the table is made is the default that the help
// shows. The struct must outlive the table. Reading takes flags before the environment before the file, stops at the
// first mistake with one line, and touches only what was given.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "cli/values.h"

namespace caravan::cli {

// How an option's text becomes a field's value. An error says what to give instead.
struct Binding {
  std::function<Status(std::string_view)> set;
  std::string value_name;    // "N", "SIZE", "auto|on|off"; empty: a switch (--name and --no-name)
  std::string default_text;  // empty: none
  bool repeatable = false;   // `set` is called for each value; the file may give an array
  bool secret = false;       // no error shows the value
};

struct Option {
  std::string name;                  // the long flag without its dashes; the file's key; CARAVAN_NAME
  std::vector<std::string> aliases;  // other flags, with their dashes: "-c", "--ctx-size"
  Binding binding;
  std::string help;        // half a line
  std::string details;     // sentences for --help and the docs; may be empty
  bool flag_only = false;  // neither in the environment nor in the file
  bool hidden = false;     // not in help or docs: names that are known in order to be refused well

  [[nodiscard]] bool is_switch() const { return binding.value_name.empty(); }
  // A switch that is off anyway, and that nothing else can turn on, needs no --no-name.
  [[nodiscard]] bool has_off_form() const { return is_switch() && !(flag_only && binding.default_text == "off"); }
};

// What is typed after the flags, in this order.
struct Positional {
  std::string name;
  Binding binding;
  bool required = true;
};

struct Example {
  std::string command;
  std::string what;  // what it is good for
};

struct CommandText {
  std::string name;     // "serve"
  std::string summary;  // one sentence
  std::vector<Example> examples;
  std::string notes;  // below the options in --help; may be empty
};

enum class HelpStyle { brief, full, markdown };
enum class Wanted { run, brief_help, full_help };

using Environment = std::map<std::string, std::string, std::less<>>;

class OptionTable {
 public:
  explicit OptionTable(CommandText text);

  // Options added after this stand under `title`.
  OptionTable& group(std::string title);
  OptionTable& add(Option option);
  OptionTable& add(Positional positional);
  // --config FILE, whose keys are the options' names.
  OptionTable& allow_config_file();

  // Errors: invalid_argument, one line with the wrong value and what to do, or the nearest name; io (the file).
  [[nodiscard]] Result<Wanted> read(std::span<const std::string> arguments, const Environment& environment) const;
  [[nodiscard]] std::string help(HelpStyle style) const;

  [[nodiscard]] const Option* find(std::string_view name) const;
  // "kv-cache" -> "CARAVAN_KV_CACHE".
  static std::string environment_name(std::string_view name);

 private:
  struct Group {
    std::string title;
    std::vector<Option> options;
  };
  // Texts given for an option, and where: "--port" or "CARAVAN_PORT" or "caravan.toml:3: port".
  struct Given {
    std::string source;
    std::vector<std::string> values;
  };
  using Givens = std::map<std::string, Given, std::less<>>;  // by option name
  struct CommandLine {
    Wanted wanted = Wanted::run;
    Givens options;
    std::vector<std::string> positionals;
    std::optional<std::string> config_file;
  };

  // option_sources.cpp
  [[nodiscard]] Result<CommandLine> read_flags(std::span<const std::string> arguments) const;
  [[nodiscard]] std::vector<std::string> with_long_names(std::span<const std::string> arguments) const;
  [[nodiscard]] Error unknown_flag(const std::string& flag) const;
  [[nodiscard]] Result<Givens> read_environment(const Environment& environment) const;
  [[nodiscard]] Status refuse_mistyped(const Environment& environment) const;
  [[nodiscard]] Result<Givens> read_file(const std::string& path) const;
  [[nodiscard]] Status apply(const Option& option, const Given& given) const;
  [[nodiscard]] Status apply_positionals(const std::vector<std::string>& given) const;
  [[nodiscard]] std::vector<std::string> names() const;

  // option_help.cpp
  [[nodiscard]] std::string usage() const;
  [[nodiscard]] std::string brief() const;
  [[nodiscard]] std::string full() const;
  [[nodiscard]] std::string markdown() const;

  CommandText text_;
  std::vector<Group> groups_;
  std::vector<Positional> positionals_;
  bool config_file_ = false;
};

// Bindings for the fields that options have.

Binding text(std::string& target, std::string value_name);
Binding text(std::optional<std::string>& target, std::string value_name);
// Each value is appended; a comma separates values too. The first value replaces what the target held.
Binding texts(std::vector<std::string>& target, std::string value_name);
Binding switched(bool& target);
Binding duration(Duration& target);
Binding number(double& target, double least, double most);

// `zero_name`: the word that stands for 0 ("auto"); 0 itself is taken too.
template <class Integer>
Binding integer(Integer& target, std::int64_t least, std::int64_t most, const std::string& zero_name = {}) {
  static_assert(std::is_integral_v<Integer>);
  const auto name = [zero_name](Integer value) {
    return value == 0 && !zero_name.empty() ? zero_name : std::to_string(value);
  };
  return {.set = [&target, least, most, zero_name](std::string_view given) -> Status {
            if (!zero_name.empty() && (given == zero_name || given == "0")) {
              target = 0;
              return {};
            }
            auto parsed = parse_integer(given, least, most);
            if (!parsed && !zero_name.empty()) parsed.error().message += ", or " + zero_name;
            if (!parsed) return std::unexpected(parsed.error());
            target = static_cast<Integer>(*parsed);
            return {};
          },
          .value_name = zero_name.empty() ? "N" : "N|" + zero_name,
          .default_text = name(target)};
}

template <class Integer>
Binding bytes(Integer& target, std::uint64_t least, std::uint64_t most = std::numeric_limits<Integer>::max()) {
  return {.set = [&target, least, most](std::string_view given) -> Status {
            const auto parsed = parse_bytes(given);
            if (!parsed) return std::unexpected(parsed.error());
            if (*parsed < least || *parsed > most) {
              return fail(ErrorCode::invalid_argument, "give a size from {} to {}", format_bytes(least),
                          format_bytes(most));
            }
            target = static_cast<Integer>(*parsed);
            return {};
          },
          .value_name = "SIZE",
          .default_text = format_bytes(target)};
}

// One of some words, each standing for a value.
template <class Value>
Binding choice(Value& target, std::vector<std::pair<std::string, Value>> words) {
  std::string all;
  std::string now;
  for (const auto& [word, value] : words) {
    all += (all.empty() ? "" : "|") + word;
    if (now.empty() && value == target) now = word;
  }
  return {.set = [&target, words = std::move(words)](std::string_view given) -> Status {
            std::vector<std::string> names;
            for (const auto& [word, value] : words) {
              if (word == given) {
                target = value;
                return {};
              }
              names.push_back(word);
            }
            const auto nearest = nearest_name(given, names);
            std::string listed;
            for (const auto& name : names) listed += (listed.empty() ? "" : ", ") + name;
            return fail(ErrorCode::invalid_argument, "give one of {}{}", listed,
                        nearest ? "; did you mean " + *nearest + "?" : "");
          },
          .value_name = std::move(all),
          .default_text = std::move(now)};
}

}  // namespace caravan::cli
