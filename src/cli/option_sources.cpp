// Where an option's text comes from: the command line, the environment, a TOML file.
#include <algorithm>

#include <CLI/CLI.hpp>
#include <toml++/toml.h>

#include "base/log.h"
#include "cli/option_table.h"

namespace caravan::cli {
namespace {

std::string did_you_mean(const std::optional<std::string>& nearest, std::string_view before) {
  return nearest ? fmt::format("; did you mean {}{}?", before, *nearest) : std::string();
}

// A TOML scalar as the text that the same option takes on the command line.
std::optional<std::string> text_of(const toml::node& node) {
  if (const auto* value = node.as_string()) return value->get();
  if (const auto* value = node.as_integer()) return std::to_string(value->get());
  if (const auto* value = node.as_boolean()) return value->get() ? "on" : "off";
  if (const auto* value = node.as_floating_point()) return fmt::format("{}", value->get());
  return std::nullopt;
}

}  // namespace

// llama-server's short names have several letters (-ngl), which the parser would take for several flags; so every alias
// becomes its option's long name first.
std::vector<std::string> OptionTable::with_long_names(std::span<const std::string> arguments) const {
  std::vector<std::string> out;
  for (const auto& argument : arguments) {
    const auto equals = argument.find('=');
    const std::string flag = argument.substr(0, equals);
    std::string renamed = argument;
    for (const auto& group : groups_) {
      for (const auto& option : group.options) {
        if (std::ranges::find(option.aliases, flag) == option.aliases.end()) continue;
        renamed = "--" + option.name + (equals == std::string::npos ? "" : argument.substr(equals));
      }
    }
    out.push_back(std::move(renamed));
  }
  return out;
}

Result<OptionTable::CommandLine> OptionTable::read_flags(std::span<const std::string> arguments) const {
  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  std::map<std::string, CLI::Option*> made;
  for (const auto& group : groups_) {
    for (const auto& option : group.options) {
      CLI::Option* flag = nullptr;
      if (option.is_switch()) {
        flag = app.add_flag("--" + option.name + (option.has_off_form() ? ",!--no-" + option.name : ""));
      } else {
        flag = app.add_option("--" + option.name);
        flag->expected(1);
      }
      made[option.name] = flag->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    }
  }
  CLI::Option* brief = app.add_flag("-h");
  CLI::Option* full = app.add_flag("--help");
  CLI::Option* config = config_file_ ? app.add_option("--config")->expected(1) : nullptr;
  if (config != nullptr) config->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);

  std::vector<std::string> reversed = with_long_names(arguments);  // CLI11 takes them from the back
  std::ranges::reverse(reversed);
  try {
    app.parse(reversed);
  } catch (const CLI::ArgumentMismatch&) {
    return fail(ErrorCode::invalid_argument, "{} needs a value; see caravan {} -h", arguments.back(), text_.name);
  } catch (const CLI::ParseError& error) {
    return fail(ErrorCode::invalid_argument, "{}; see caravan {} -h", error.what(), text_.name);
  }

  CommandLine line;
  if (brief->count() > 0) line.wanted = Wanted::brief_help;
  if (full->count() > 0) line.wanted = Wanted::full_help;
  if (line.wanted != Wanted::run) return line;
  for (const auto& [name, flag] : made) {
    if (flag->count() > 0) line.options[name] = {"--" + name, flag->results()};
  }
  if (config != nullptr && config->count() > 0) line.config_file = config->results().back();
  bool only_positionals = false;
  for (auto& rest : app.remaining()) {
    if (rest == "--" && !only_positionals) {
      only_positionals = true;
    } else if (!only_positionals && rest.size() > 1 && rest[0] == '-') {
      return std::unexpected(unknown_flag(rest));
    } else {
      line.positionals.push_back(std::move(rest));
    }
  }
  return line;
}

Error OptionTable::unknown_flag(const std::string& flag) const {
  const std::string name = flag.substr(0, flag.find('='));
  std::vector<std::string> candidates{"--help"};
  if (config_file_) candidates.emplace_back("--config");
  for (const auto& group : groups_) {
    for (const auto& option : group.options) {
      if (option.hidden) continue;
      candidates.push_back("--" + option.name);
      if (option.has_off_form()) candidates.push_back("--no-" + option.name);
      candidates.insert(candidates.end(), option.aliases.begin(), option.aliases.end());
    }
  }
  // One dash or two is how a flag is typed, not what it is called.
  const auto bare = [](std::string_view text) {
    return std::string(text.substr(std::min(text.find_first_not_of('-'), text.size())));
  };
  std::vector<std::string> bare_candidates;
  bare_candidates.reserve(candidates.size());
  for (const auto& candidate : candidates) bare_candidates.push_back(bare(candidate));
  std::string suggestion;
  if (const auto nearest = nearest_name(bare(name), bare_candidates)) {
    suggestion =
        "; did you mean " + candidates[std::ranges::find(bare_candidates, *nearest) - bare_candidates.begin()] + "?";
  }
  return {ErrorCode::invalid_argument,
          fmt::format("unknown flag {}{}{}", name, suggestion,
                      suggestion.empty() ? fmt::format("; see caravan {} -h", text_.name) : "")};
}

// A name that is nearly an option's was meant for us; others with our prefix may be somebody else's.
Status OptionTable::refuse_mistyped(const Environment& environment) const {
  std::vector<std::string> known{"CARAVAN_CONFIG"};
  for (const auto& group : groups_) {
    for (const auto& option : group.options) {
      if (!option.flag_only && !option.hidden) known.push_back(environment_name(option.name));
    }
  }
  for (const auto& [name, value] : environment) {
    if (!name.starts_with("CARAVAN_") || std::ranges::find(known, name) != known.end()) continue;
    const auto nearest = nearest_name(name, known);
    constexpr std::size_t slip = 2;
    if (nearest && edit_distance(name, *nearest) <= slip) {
      return fail(ErrorCode::invalid_argument, "{} in the environment is no option; did you mean {}?", name, *nearest);
    }
  }
  return {};
}

Result<OptionTable::Givens> OptionTable::read_environment(const Environment& environment) const {
  if (const Status status = refuse_mistyped(environment); !status) return std::unexpected(status.error());
  Givens given;
  for (const auto& group : groups_) {
    for (const auto& option : group.options) {
      if (option.flag_only || option.hidden) continue;
      const std::string name = environment_name(option.name);
      const auto found = environment.find(name);
      if (found == environment.end()) continue;
      // Kubernetes describes a service named "caravan" to its neighbours in this variable.
      if (found->second.starts_with("tcp://")) {
        log::warn("{}={} was not set for this program; ignored", name, found->second);
        continue;
      }
      given[option.name] = {name, {found->second}};
    }
  }
  return given;
}

Result<OptionTable::Givens> OptionTable::read_file(const std::string& path) const {
  toml::table file;
  try {
    file = toml::parse_file(path);
  } catch (const toml::parse_error& error) {
    const auto line = error.source().begin.line;
    if (line == 0) return fail(ErrorCode::io, "{}: cannot be read; give a TOML file to --config", path);
    return fail(ErrorCode::invalid_argument, "{}:{}: {}", path, line, error.description());
  }
  Givens given;
  for (const auto& [key, node] : file) {
    const std::string name(key.str());
    const auto line = node.source().begin.line;
    const Option* option = find(name);
    if (option == nullptr || option->flag_only) {
      return fail(ErrorCode::invalid_argument, "{}:{}: unknown key {}{}", path, line, name,
                  did_you_mean(nearest_name(name, names()), ""));
    }
    Given& texts = given[name];
    texts.source = fmt::format("{}:{}: {}", path, line, name);
    const auto add = [&](const toml::node& scalar) {
      auto text = text_of(scalar);
      if (text) texts.values.push_back(std::move(*text));
      return text.has_value();
    };
    bool good = true;
    if (const auto* array = node.as_array(); array != nullptr && option->binding.repeatable) {
      for (const auto& element : *array) good = good && add(element);
    } else {
      good = add(node);
    }
    if (!good) {
      return fail(ErrorCode::invalid_argument, "{}: give {}", texts.source,
                  option->binding.repeatable ? "a text or an array of texts" : "a text, a number, or true or false");
    }
  }
  return given;
}

Status OptionTable::apply(const Option& option, const Given& given) const {
  for (const auto& value : given.values) {
    if (const Status status = option.binding.set(value); !status) {
      // A switch that was given as a flag has no value that anybody typed.
      const bool bare = option.is_switch() && given.source.starts_with("--") && value == "true";
      const std::string shown = option.binding.secret ? " (not shown)"
                                : bare                ? ""
                                : value.empty()       ? " \"\""
                                                      : " " + value;
      return fail(ErrorCode::invalid_argument, "{}{}: {}", given.source, shown, status.error().message);
    }
  }
  return {};
}

Status OptionTable::apply_positionals(const std::vector<std::string>& given) const {
  for (std::size_t i = 0; i < positionals_.size(); ++i) {
    const auto& positional = positionals_[i];
    if (i >= given.size()) {
      if (!positional.required) continue;
      return fail(ErrorCode::invalid_argument, "{} is missing; see caravan {} -h", positional.name, text_.name);
    }
    if (const Status status = positional.binding.set(given[i]); !status) {
      return fail(ErrorCode::invalid_argument, "{} {}: {}", positional.name, given[i], status.error().message);
    }
  }
  if (given.size() > positionals_.size()) {
    return fail(ErrorCode::invalid_argument, "{} is one word too many; see caravan {} -h", given[positionals_.size()],
                text_.name);
  }
  return {};
}

}  // namespace caravan::cli
