// Any bytes as a model file: it is checked before libllama loads it, and refused in one line or summed up, whatever it
// says. Metadata alone is read, so the file is made longer than anything an input's tensors may claim to hold.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/temp_directory.h"
#include "engine/gguf_file.h"

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace caravan::engine;
  static const caravan::TempDirectory folder;
  const auto path = folder.write("model.gguf", std::string_view(reinterpret_cast<const char*>(data), size));
  // Cut short as the input is, or as long as it says: an odd length leaves the first.
  constexpr std::uintmax_t file_bytes = std::uintmax_t{4} << 20U;
  if (size % 2 == 0) std::filesystem::resize_file(path, file_bytes);
  const auto model = resolve_model(path);
  CHECK(model && model->shards.size() == 1);
  const auto facts = check_model_file(*model);
  if (!facts) {
    CHECK(facts.error().message.contains("model.gguf"));
    return 0;
  }
  CHECK(!facts->architecture.empty() && !facts->layers.empty() && facts->layer_bytes.size() >= facts->layers.size());
  CHECK(facts->weights_bytes() <= model->bytes);
  return 0;
}
