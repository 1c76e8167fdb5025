// `caravan bench`: starts or finds the servers, runs the scenario's waves on them turn about, reports.
#pragma once

#include <string>

#include "cli/command.h"
#include "cli/option_table.h"

namespace caravan::cli {

int run_bench(const Invocation& invocation);
std::string bench_help(HelpStyle style);

}  // namespace caravan::cli
