#include "cli/option_table.h"

#include <memory>

#include "base/check.h"

namespace caravan::cli {

OptionTable::OptionTable(CommandText text) : text_(std::move(text)) {}

OptionTable& OptionTable::group(std::string title) {
  groups_.push_back({std::move(title), {}});
  return *this;
}

OptionTable& OptionTable::add(Option option) {
  CHECK(!groups_.empty());
  CHECK(find(option.name) == nullptr);
  groups_.back().options.push_back(std::move(option));
  return *this;
}

OptionTable& OptionTable::add(Positional positional) {
  positionals_.push_back(std::move(positional));
  return *this;
}

OptionTable& OptionTable::allow_config_file() {
  config_file_ = true;
  return *this;
}

const Option* OptionTable::find(std::string_view name) const {
  for (const auto& group : groups_) {
    for (const auto& option : group.options) {
      if (option.name == name) return &option;
    }
  }
  return nullptr;
}

std::vector<std::string> OptionTable::names() const {
  std::vector<std::string> names;
  for (const auto& group : groups_) {
    for (const auto& option : group.options) {
      if (!option.hidden) names.push_back(option.name);
    }
  }
  return names;
}

std::string OptionTable::environment_name(std::string_view name) {
  std::string out = "CARAVAN_";
  for (const char c : name) out += c == '-' ? '_' : c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c;
  return out;
}

Result<Wanted> OptionTable::read(std::span<const std::string> arguments, const Environment& environment) const {
  const auto line = read_flags(arguments);
  if (!line) return std::unexpected(line.error());
  if (line->wanted != Wanted::run) return line->wanted;

  Givens given = line->options;
  auto around = read_environment(environment);
  if (!around) return std::unexpected(around.error());
  given.merge(std::move(*around));  // keeps what is there: flags win
  if (config_file_) {
    std::optional<std::string> path = line->config_file;
    if (const auto found = environment.find("CARAVAN_CONFIG"); !path && found != environment.end())
      path = found->second;
    if (path) {
      auto file = read_file(*path);
      if (!file) return std::unexpected(file.error());
      given.merge(std::move(*file));
    }
  }
  for (const auto& group : groups_) {
    for (const auto& option : group.options) {
      const auto found = given.find(option.name);
      if (found == given.end()) continue;
      if (const Status status = apply(option, found->second); !status) return std::unexpected(status.error());
    }
  }
  if (const Status status = apply_positionals(line->positionals); !status) return std::unexpected(status.error());
  return Wanted::run;
}

Binding text(std::string& target, std::string value_name) {
  return {.set = [&target](std::string_view given) -> Status {
            target = given;
            return {};
          },
          .value_name = std::move(value_name),
          .default_text = target};
}

Binding text(std::optional<std::string>& target, std::string value_name) {
  return {.set = [&target](std::string_view given) -> Status {
            target = std::string(given);
            return {};
          },
          .value_name = std::move(value_name),
          .default_text = target.value_or("")};
}

Binding texts(std::vector<std::string>& target, std::string value_name) {
  return {.set = [&target, fresh = std::make_shared<bool>(true)](std::string_view given) -> Status {
            if (std::exchange(*fresh, false)) target.clear();
            while (true) {
              const auto comma = given.find(',');
              const auto part = given.substr(0, comma);
              if (part.empty()) return fail(ErrorCode::invalid_argument, "give something, with commas between");
              target.emplace_back(part);
              if (comma == std::string_view::npos) return {};
              given.remove_prefix(comma + 1);
            }
          },
          .value_name = std::move(value_name),
          .default_text = "",
          .repeatable = true};
}

Binding switched(bool& target) {
  return {.set = [&target](std::string_view given) -> Status {
            const auto parsed = parse_switch(given);
            if (!parsed) return std::unexpected(parsed.error());
            target = *parsed;
            return {};
          },
          .value_name = "",
          .default_text = target ? "on" : "off"};
}

Binding duration(Duration& target) {
  return {.set = [&target](std::string_view given) -> Status {
            const auto parsed = parse_duration(given);
            if (!parsed) return std::unexpected(parsed.error());
            target = *parsed;
            return {};
          },
          .value_name = "TIME",
          .default_text = format_duration(target)};
}

Binding number(double& target, double least, double most) {
  return {.set = [&target, least, most](std::string_view given) -> Status {
            const auto parsed = parse_number(given, least, most);
            if (!parsed) return std::unexpected(parsed.error());
            target = *parsed;
            return {};
          },
          .value_name = "N",
          .default_text = fmt::format("{}", target)};
}

}  // namespace caravan::cli
