// `caravan serve`: wires everything bottom-up, serves, and stops top-down.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.h"
#include "cli/command.h"
#include "cli/option_table.h"

namespace caravan::cli {

int run_serve(const Invocation& invocation);
std::string serve_help(HelpStyle style);

// The demo model: CARAVAN_DEMO_MODEL, else beside the executable, else in the source tree. Errors: not_found.
Result<std::filesystem::path> find_demo_model(const Invocation& invocation);

}  // namespace caravan::cli
