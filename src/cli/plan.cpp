#include "cli/plan.h"

#include <cstdio>

#include "base/log.h"
#include "cli/options.h"
#include "cli/serve.h"
#include "engine/engine_sizing.h"

namespace caravan::cli {
namespace {

struct PlanOptions {
  engine::ModelOptions model;
  engine::EngineOptions engine;
  TalkOptions talk;
  bool json = false;
};

OptionTable plan_table(PlanOptions& options) {
  OptionTable table(
      {.name = "plan",
       .summary = "Say what fits into memory: weights, KV and compute, users and contexts.",
       .examples = {{"caravan plan -m model.gguf", "what serve would choose here, and why"},
                    {"caravan plan -m model.gguf -np 32 -ctk q8_0 -ctv q8_0", "for 32 users and smaller cells"},
                    {"caravan plan -m model.gguf --json", "the same figures for programs"}},
       .notes = "Exit code 1: it does not fit. Nothing is loaded; the flags mean what they mean to serve."});
  add_model_options(table, options.model);
  add_cache_options(table, options.engine);
  add_compute_options(table, options.engine);
  add_talk_options(table, options.talk);
  table.add({.name = "json", .binding = switched(options.json), .help = "print JSON", .flag_only = true});
  return table.allow_config_file();
}

// Errors: a file that cannot be served, or nothing that fits.
Result<Plan> make_plan(const PlanOptions& options) {
  const auto file = engine::resolve_model(options.model.path);
  if (!file) return std::unexpected(file.error());
  auto facts = engine::check_model_file(*file);
  if (!facts) return std::unexpected(facts.error());
  const auto request = engine::sizing_request(*facts, options.engine, options.model.gpu_layers);
  if (!request) return std::unexpected(request.error());
  const engine::MemoryBudget budget = engine::read_memory_budget();
  auto sizing = engine::choose(*facts, *request, budget);
  if (!sizing) return std::unexpected(sizing.error());
  Plan plan{.model_path = options.model.path.string(), .model_name = facts->name, .facts = std::move(*facts)};
  if (plan.model_name.empty()) plan.model_name = file->path().stem().string();
  plan.request = *request;
  plan.sizing = std::move(*sizing);
  if (plan.facts.decoder) plan.table = engine::sizing_table(plan.facts, *request, budget);
  return plan;
}

}  // namespace

int run_plan(const Invocation& invocation) {
  PlanOptions options;
  if (const auto code = read_options(plan_table(options), invocation)) return *code;
  if (const Status status = validate(options.engine); !status) return usage_error(status.error());
  set_up_log(options.talk, invocation.environment);
  if (options.model.path.empty()) {
    const auto demo = find_demo_model(invocation);
    if (!demo) return failure(demo.error());
    options.model.path = *demo;
  }
  const auto plan = make_plan(options);
  if (!plan) return failure(plan.error());
  const std::string text = options.json ? plan_json(*plan) : plan_text(*plan);
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
  return plan->sizing.fits ? exit_fine : exit_failed;
}

std::string plan_help(HelpStyle style) {
  PlanOptions options;
  return plan_table(options).help(style);
}

}  // namespace caravan::cli
