// What the option table says about itself: on one screen, at length, and for the docs.
#include <algorithm>

#include "cli/option_table.h"
#include "cli/table.h"

namespace caravan::cli {
namespace {

constexpr std::size_t line_width = 100;

std::string flag_text(const Option& option) {
  if (option.is_switch()) return (option.has_off_form() ? "--[no-]" : "--") + option.name;
  return "--" + option.name + " " + option.binding.value_name;
}

std::string short_aliases(const Option& option) {
  std::string out;
  for (const auto& alias : option.aliases) {
    if (!alias.starts_with("--")) out += (out.empty() ? "" : ", ") + alias;
  }
  return out;
}

std::string default_note(const Option& option) {
  const auto& text = option.binding.default_text;
  return text.empty() || (option.is_switch() && !option.has_off_form()) ? "" : " [" + text + "]";
}

// Words of `text` in lines of at most line_width columns, each begun by `indent` spaces.
std::string wrapped(std::string_view text, std::size_t indent) {
  std::string out;
  std::string line;
  while (!text.empty()) {
    const auto space = text.find(' ');
    const std::string word(text.substr(0, space));
    text.remove_prefix(space == std::string_view::npos ? text.size() : space + 1);
    if (!line.empty() && indent + line.size() + 1 + word.size() > line_width) {
      out += std::string(indent, ' ') + line + '\n';
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  return line.empty() ? out : out + std::string(indent, ' ') + line + '\n';
}

std::string examples(const CommandText& text) {
  Table table({{"", Align::left}, {"", Align::left}});
  std::string out;
  for (const auto& example : text.examples) {
    out += fmt::format("  {}\n", example.command);
    if (!example.what.empty()) out += wrapped(example.what, 6);
  }
  return out;
}

}  // namespace

std::string OptionTable::usage() const {
  std::string out = "caravan " + text_.name;
  for (const auto& positional : positionals_) {
    out += positional.required ? " " + positional.name : " [" + positional.name + "]";
  }
  return out + " [options]";
}

std::string OptionTable::help(HelpStyle style) const {
  switch (style) {
    case HelpStyle::brief:
      return brief();
    case HelpStyle::full:
      return full();
    case HelpStyle::markdown:
      return markdown();
  }
  return {};
}

std::string OptionTable::brief() const {
  std::string out = fmt::format("{}\nusage: {}\n", text_.summary, usage());
  std::size_t short_width = 0;
  std::size_t flag_width = 0;
  for (const auto& group : groups_) {
    for (const auto& option : group.options) {
      if (option.hidden) continue;
      short_width = std::max(short_width, short_aliases(option).size());
      flag_width = std::max(flag_width, flag_text(option).size());
    }
  }
  for (const auto& group : groups_) {
    out += fmt::format("{}:\n", group.title);
    for (const auto& option : group.options) {
      if (option.hidden) continue;
      out += fmt::format("  {:<{}}  {:<{}}  {}{}\n", short_aliases(option), short_width, flag_text(option), flag_width,
                         option.help, default_note(option));
    }
  }
  out += fmt::format("examples (more with --help):\n");
  for (std::size_t i = 0; i < std::min<std::size_t>(2, text_.examples.size()); ++i) {
    out += fmt::format("  {}\n", text_.examples[i].command);
  }
  return out;
}

std::string OptionTable::full() const {
  std::string out = fmt::format("{}\n\nusage: {}\n", text_.summary, usage());
  for (const auto& positional : positionals_) {
    out += fmt::format("  {}: {}{}\n", positional.name, positional.binding.value_name,
                       positional.binding.default_text.empty() ? "" : " [" + positional.binding.default_text + "]");
  }
  out += "\nexamples:\n" + examples(text_);
  for (const auto& group : groups_) {
    out += fmt::format("\n{}:\n", group.title);
    for (const auto& option : group.options) {
      if (option.hidden) continue;
      std::string names;
      for (const auto& alias : option.aliases) names += alias + ", ";
      out += fmt::format("  {}{}{}\n", names, flag_text(option), default_note(option));
      out += wrapped(option.help + (option.details.empty() ? "." : ". " + option.details), 6);
    }
  }
  if (config_file_) {
    out +=
        '\n' + wrapped("Flags win, then the environment (CARAVAN_ and the name, as in " + environment_name("kv-cache") +
                           "=off), then the file that --config or CARAVAN_CONFIG names: TOML, with the flags' long "
                           "names as keys.",
                       0);
  }
  if (!text_.notes.empty()) out += '\n' + wrapped(text_.notes, 0);
  return out;
}

std::string OptionTable::markdown() const {
  std::string out = fmt::format("## caravan {}\n\n{}\n\n```\n{}\n```\n", text_.name, text_.summary, usage());
  for (const auto& positional : positionals_) {
    out += fmt::format("\n`{}`: {}\n", positional.name, positional.binding.value_name);
  }
  for (const auto& group : groups_) {
    out += fmt::format("\n### {}\n\n", group.title);
    Table table(
        {{"flag", Align::left}, {"default", Align::left}, {"environment", Align::left}, {"meaning", Align::left}});
    for (const auto& option : group.options) {
      if (option.hidden) continue;
      std::string names = "`" + flag_text(option) + "`";
      for (const auto& alias : option.aliases) names += " `" + alias + "`";
      table.row({names, option.binding.default_text, option.flag_only ? "" : "`" + environment_name(option.name) + "`",
                 option.help + (option.details.empty() ? "." : ". " + option.details)});
    }
    out += table.markdown();
  }
  out += "\nExamples:\n\n```\n";
  for (const auto& example : text_.examples) out += example.command + "\n";
  out += "```\n";
  if (!text_.notes.empty()) out += '\n' + text_.notes + '\n';
  return out;
}

}  // namespace caravan::cli
