// caravan-synth-model: writes GGUF models with random weights, for tests and benchmarks.
#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "file.h"
#include "shapes.h"
#include "tokenizer.h"

namespace caravan::synth {
namespace {

constexpr int exit_failed = 1;
constexpr int exit_usage = 2;
constexpr std::array types = {GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_Q8_0, GGML_TYPE_Q4_0};

int complain(const Error& error) {
  fmt::print(stderr, "caravan-synth-model: {}\n", error.message);
  return error.code == ErrorCode::invalid_argument ? exit_usage : exit_failed;
}

std::string names_of_shapes() {
  std::string names;
  for (const Shape& shape : shapes()) names += (names.empty() ? "" : ", ") + std::string(shape.name);
  return names;
}

void list_shapes(const Tokenizer& tokenizer) {
  fmt::print("{:<12} {:<14} {:>7} {:>6} {:>6} {:>12}  {}\n", "shape", "architecture", "layers", "width", "type",
             "parameters", "what it has");
  for (const Shape& shape : shapes()) {
    const auto plan = plan_model(shape, shape.defaults, shape.type, static_cast<std::uint32_t>(tokenizer.tokens.size()),
                                 tokenizer.control);
    fmt::print("{:<12} {:<14} {:>7} {:>6} {:>6} {:>12}  {}\n", shape.name, shape.architecture, shape.defaults.layers,
               shape.defaults.width, ggml_type_name(shape.type), plan ? plan->parameters() : 0, shape.summary);
  }
}

int run(int count, char** values) {
  CLI::App app{
      "Writes GGUF models with random weights and the demo model's tokenizer, for tests and benchmarks.\n"
      "The same flags give the same bytes."};
  app.name("caravan-synth-model");
  app.footer(
      "Examples:\n"
      "  caravan-synth-model --list\n"
      "  caravan-synth-model --shape iswa --window 64 -o iswa.gguf\n"
      "  caravan-synth-model --shape dense --layers 8 --width 512 --heads 8 --head 64 --type q8_0 -o dense.gguf\n"
      "  caravan-synth-model --shape bench-300m -o bench-300m.gguf");
  std::string shape_name;
  std::string type_name;
  std::string output;
  std::uint64_t seed = 1;
  bool list = false;
  Dimensions given;
  app.add_option("--shape", shape_name, "one of " + names_of_shapes())->type_name("NAME");
  app.add_option("-o,--output", output, "the file to write")->type_name("FILE");
  app.add_option("--type", type_name, "f32, f16, q8_0 or q4_0; by default as --list says")->type_name("TYPE");
  app.add_option("--seed", seed, "another seed, other weights")->capture_default_str()->type_name("N");
  app.add_flag("--list", list, "the shapes and their sizes");
  const std::array dimension_flags = {
      std::tuple{"--layers", "layers", &Dimensions::layers},
      std::tuple{"--width", "embedding length", &Dimensions::width},
      std::tuple{"--heads", "attention heads", &Dimensions::heads},
      std::tuple{"--kv-heads", "of those with K and V of their own", &Dimensions::kv_heads},
      std::tuple{"--head", "length of a head", &Dimensions::head},
      std::tuple{"--feed-forward", "feed-forward length", &Dimensions::feed_forward},
      std::tuple{"--context", "trained context in tokens", &Dimensions::context},
      std::tuple{"--window", "sliding window in tokens (iswa)", &Dimensions::window},
      std::tuple{"--state", "state size (recurrent, hybrid)", &Dimensions::state},
      std::tuple{"--latent", "rank of the compressed K/V (mla)", &Dimensions::latent},
  };
  for (const auto& [flag, meaning, member] : dimension_flags) {
    app.add_option(flag, given.*member, meaning)->type_name("N")->group("Dimensions (else the shape's own)");
  }
  try {
    app.parse(count, values);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return 0;
  } catch (const CLI::ParseError& problem) {
    return complain({ErrorCode::invalid_argument, fmt::format("{}; see --help", problem.what())});
  }

  const Tokenizer tokenizer = demo_tokenizer();
  if (list) {
    list_shapes(tokenizer);
    return 0;
  }
  const auto shape = find_shape(shape_name);
  if (!shape) {
    return complain(
        {ErrorCode::invalid_argument,
         fmt::format("--shape {}: give one of {}", shape_name.empty() ? "is missing" : shape_name, names_of_shapes())});
  }
  if (output.empty()) return complain({ErrorCode::invalid_argument, "-o is missing: name the file to write"});
  ggml_type type = shape->type;
  if (!type_name.empty()) {
    const auto found = std::ranges::find_if(types, [&](ggml_type each) { return type_name == ggml_type_name(each); });
    if (found == types.end()) {
      return complain({ErrorCode::invalid_argument, fmt::format("--type {}: give f32, f16, q8_0 or q4_0", type_name)});
    }
    type = *found;
  }
  Dimensions dimensions = shape->defaults;
  for (const auto& [flag, meaning, member] : dimension_flags) {
    if (app.count(flag) > 0) dimensions.*member = given.*member;
  }
  const auto plan =
      plan_model(*shape, dimensions, type, static_cast<std::uint32_t>(tokenizer.tokens.size()), tokenizer.control);
  if (!plan) return complain(plan.error());
  const unsigned threads = std::max(1U, std::thread::hardware_concurrency());
  const auto written = write_model(*plan, tokenizer, seed, threads, output);
  if (!written) return complain(written.error());
  fmt::print(stderr, "{}: {} ({}), {:.1f}M parameters, {} bytes\n", output, shape->name, shape->architecture,
             static_cast<double>(plan->parameters()) / 1e6, written->bytes);
  return 0;
}

}  // namespace
}  // namespace caravan::synth

int main(int count, char** values) { return caravan::synth::run(count, values); }
