// Talk goes to stderr, one line each; data goes to stdout and never through here. Thread-safe; does not block for long.
// Prompt text is never logged.
#pragma once

#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace caravan::log {

enum class Level { debug, info, warn, error };

// Lines below `level` are dropped; the default is info.
void set_level(Level level);
// No colours, even on a terminal.
void set_plain();
bool enabled(Level level);
void write(Level level, std::string_view line);

template <class... Args>
void debug(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::debug)) write(Level::debug, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  if (enabled(Level::info)) write(Level::info, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::warn, fmt::format(format, std::forward<Args>(args)...));
}
template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  write(Level::error, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace caravan::log
