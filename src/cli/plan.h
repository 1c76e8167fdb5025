// `caravan plan`: what fits, before anything is loaded. Prints what `caravan serve` would choose with the same flags,
// and why.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/option_table.h"
#include "engine/gguf_file.h"
#include "engine/sizing.h"

namespace caravan::cli {

int run_plan(const Invocation& invocation);
std::string plan_help(HelpStyle style);

// All that is printed. Pure from here on.
struct Plan {
  std::string model_path;
  std::string model_name;
  engine::ModelFacts facts;
  engine::SizingRequest request;
  engine::Sizing sizing;
  std::vector<engine::SizingCell> table;
};

// The command that serves as planned.
std::string serve_command(const Plan& plan);
std::string plan_text(const Plan& plan);
std::string plan_json(const Plan& plan);

}  // namespace caravan::cli
