// Writes a planned model as a GGUF file. The same plan and seed give the same bytes, on any number of threads.
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/result.h"
#include "shapes.h"
#include "tokenizer.h"

namespace caravan::synth {

struct Written {
  std::uint64_t bytes = 0;
};

// Memory: one tensor at a time. The file appears under its name when it is whole. Errors: io.
Result<Written> write_model(const ModelPlan& plan, const Tokenizer& tokenizer, std::uint64_t seed, unsigned threads,
                            const std::filesystem::path& path);

}  // namespace caravan::synth
