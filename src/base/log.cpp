#include "base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

namespace caravan::log {
namespace {

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::debug:
      return spdlog::level::debug;
    case Level::info:
      return spdlog::level::info;
    case Level::warn:
      return spdlog::level::warn;
    case Level::error:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

spdlog::logger& logger() {
  static const auto instance = [] {
    auto made = spdlog::stderr_color_mt("caravan");
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e %^%-5l%$ %v");
    return made;
  }();
  return *instance;
}

}  // namespace

void set_level(Level level) { logger().set_level(to_spdlog(level)); }
void set_plain() {
  for (const auto& sink : logger().sinks()) {
    if (auto* colored = dynamic_cast<spdlog::sinks::stderr_color_sink_mt*>(sink.get())) {
      colored->set_color_mode(spdlog::color_mode::never);
    }
  }
}
bool enabled(Level level) { return logger().should_log(to_spdlog(level)); }
void write(Level level, std::string_view line) { logger().log(to_spdlog(level), line); }

}  // namespace caravan::log
