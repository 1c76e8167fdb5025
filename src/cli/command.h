// The program's commands, and how one is called. Exit codes: 0 fine, 1 failed, 2 usage.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/option_table.h"

namespace caravan::cli {

inline constexpr int exit_fine = 0;
inline constexpr int exit_failed = 1;
inline constexpr int exit_usage = 2;

struct Invocation {
  std::string program;                 // path of this executable
  std::vector<std::string> arguments;  // after the command's name
  Environment environment;             // CARAVAN_*, LLAMA_KV_CACHE_DEBUG and NO_COLOR
};

struct Command {
  std::string_view name;
  std::string_view summary;
  int (*run)(const Invocation& invocation);
  std::string (*help)(HelpStyle style);  // from its option table
};

std::span<const Command> commands();

// `arguments` without the program's name. Returns the exit code.
int run(const std::string& program, std::span<const std::string> arguments, const Environment& environment);

// Fills the table's structs from the invocation. Prints help or the one line of an error; a value is the exit code to
// leave with at once.
std::optional<int> read_options(const OptionTable& table, const Invocation& invocation);

// "caravan: ..." on stderr, and the exit code that goes with it.
int usage_error(const Error& error);
int failure(const Error& error);

// All commands' options as docs/options.md holds them.
std::string options_markdown();

}  // namespace caravan::cli
