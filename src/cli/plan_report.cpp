// A plan as tables and as JSON.
#include <algorithm>
#include <map>
#include <set>
#include <string>

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "cli/plan.h"
#include "cli/table.h"
#include "engine/bytes_text.h"

namespace caravan::cli {

namespace json = boost::json;
using engine::bytes_text;

namespace {

std::string type_name(ggml_type type) { return ggml_type_name(type); }

// So that a shell reads it as one word.
std::string quoted(const std::string& word) {
  constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+=:,@%";
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string layout_text(const Plan& plan) {
  if (plan.facts.recurrent) return "a state for each";
  return plan.sizing.shape.unified ? "one pool that shares prefixes" : "a stream for each";
}

std::string device_table(const Plan& plan) {
  Table table(
      {{"device", Align::left}, {"may be taken"}, {"weights"}, {"KV"}, {"compute"}, {"together"}, {"", Align::left}});
  for (const engine::DeviceNeed& need : plan.sizing.devices) {
    table.row({need.device, bytes_text(need.available_bytes), bytes_text(need.weights_bytes), bytes_text(need.kv_bytes),
               bytes_text(need.compute_bytes), bytes_text(need.total_bytes()), need.fits() ? "fits" : "does not fit"});
  }
  return table.text();
}

std::string users_table(const Plan& plan) {
  std::set<std::uint32_t> contexts;
  for (const auto& cell : plan.table) contexts.insert(cell.context);
  std::vector<Column> columns{{"K and V", Align::left}, {"users"}};
  for (const std::uint32_t context : contexts) columns.push_back({std::to_string(context)});
  Table table(columns);
  std::vector<std::string> row;
  for (const auto& cell : plan.table) {
    if (cell.context == *contexts.begin()) row = {type_name(cell.type), std::to_string(cell.users)};
    row.push_back(cell.fits ? bytes_text(cell.bytes) : "(" + bytes_text(cell.bytes) + ")");
    if (cell.context == *contexts.rbegin()) table.row(row);
  }
  return table.text();
}

}  // namespace

std::string serve_command(const Plan& plan) {
  const engine::ContextShape& shape = plan.sizing.shape;
  std::string command = "caravan serve -m " + quoted(plan.model_path);
  if (!plan.facts.decoder) return command;
  command += fmt::format(" --kvsize {} --parallel {}", shape.cells, plan.sizing.parallel);
  if (!shape.unified && !plan.facts.recurrent) command += " --kv-layout streams";
  if (shape.type_k != GGML_TYPE_F16) command += " --cache-type-k " + type_name(shape.type_k);
  if (shape.type_v != GGML_TYPE_F16) command += " --cache-type-v " + type_name(shape.type_v);
  const engine::SizingRequest defaults;
  const engine::SizingRequest& request = plan.request;
  if (!request.kv_cache) command += " --no-kv-cache";
  if (!request.flash_attention) command += " --flash-attn off";
  if (request.batch_tokens != defaults.batch_tokens) command += fmt::format(" --batch-size {}", request.batch_tokens);
  if (request.ubatch_tokens != defaults.ubatch_tokens)
    command += fmt::format(" --ubatch-size {}", request.ubatch_tokens);
  if (request.gpu_layers >= 0) command += fmt::format(" --gpu-layers {}", request.gpu_layers);
  return command;
}

std::string plan_text(const Plan& plan) {
  const engine::Sizing& sizing = plan.sizing;
  std::string out = fmt::format("{}: {}, {:.1f}M parameters, {} of weights, trained for {} tokens\n\n", plan.model_name,
                                plan.facts.architecture, static_cast<double>(plan.facts.parameters) / 1e6,
                                bytes_text(plan.facts.weights_bytes()), plan.facts.context_train);
  out += device_table(plan);
  if (!plan.facts.decoder) return out + "\nThe model gives embeddings only and keeps no KV.\n";
  out += "\nKV and compute for users with a context each, in tokens, nothing shared; (what does not fit)\n" +
         users_table(plan);
  out += fmt::format("\nchoice: {} cells, {} users at once, up to {} tokens each, K {}, V {}, {}\n", sizing.shape.cells,
                     sizing.parallel, sizing.context_tokens, type_name(sizing.shape.type_k),
                     type_name(sizing.shape.type_v), layout_text(plan));
  for (const std::string& line : sizing.why) out += "  " + line + "\n";
  return out + "\n" + serve_command(plan) + "\n";
}

std::string plan_json(const Plan& plan) {
  const engine::Sizing& sizing = plan.sizing;
  json::array devices;
  for (const engine::DeviceNeed& need : sizing.devices) {
    devices.push_back(json::object{{"device", need.device},
                                   {"description", need.description},
                                   {"available_bytes", need.available_bytes},
                                   {"weights_bytes", need.weights_bytes},
                                   {"kv_bytes", need.kv_bytes},
                                   {"compute_bytes", need.compute_bytes},
                                   {"fits", need.fits()}});
  }
  json::array table;
  for (const auto& cell : plan.table) {
    table.push_back(json::object{{"type", type_name(cell.type)},
                                 {"users", cell.users},
                                 {"context_tokens", cell.context},
                                 {"bytes", cell.bytes},
                                 {"fits", cell.fits}});
  }
  json::array why;
  for (const std::string& line : sizing.why) why.emplace_back(line);
  const json::object out{{"model",
                          {{"name", plan.model_name},
                           {"path", plan.model_path},
                           {"architecture", plan.facts.architecture},
                           {"parameters", plan.facts.parameters},
                           {"weights_bytes", plan.facts.weights_bytes()},
                           {"context_train", plan.facts.context_train},
                           {"embeddings_only", !plan.facts.decoder},
                           {"memory_exact", plan.facts.memory_exact}}},
                         {"devices", std::move(devices)},
                         {"users_by_context", std::move(table)},
                         {"choice",
                          {{"cells", sizing.shape.cells},
                           {"parallel", sizing.parallel},
                           {"sequences", sizing.shape.sequences},
                           {"context_tokens", sizing.context_tokens},
                           {"type_k", type_name(sizing.shape.type_k)},
                           {"type_v", type_name(sizing.shape.type_v)},
                           {"layout", sizing.shape.unified ? "unified" : "streams"},
                           {"fits", sizing.fits},
                           {"why", std::move(why)}}},
                         {"command", serve_command(plan)}};
  return json::serialize(out) + "\n";
}

}  // namespace caravan::cli
