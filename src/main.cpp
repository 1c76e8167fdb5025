// The program: hands its arguments and its part of the environment to the command that is asked for (cli/command.h).
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "cli/command.h"

extern char** environ;

namespace {

caravan::cli::Environment our_environment() {
  caravan::cli::Environment ours;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const auto equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    const auto name = text.substr(0, equals);
    if (name.starts_with("CARAVAN_") || name == "LLAMA_KV_CACHE_DEBUG" || name == "NO_COLOR") {
      ours.emplace(name, text.substr(equals + 1));
    }
  }
  return ours;
}

std::string executable(const char* called) {
  std::error_code problem;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", problem);
  return problem ? std::string(called) : path.string();
}

}  // namespace

int main(int count, char** values) {
  const std::vector<std::string> arguments(values + 1, values + count);
  return caravan::cli::run(executable(values[0]), arguments, our_environment());
}
