// The metadata of one GGUF file, read with types checked: ggml's own accessors abort on another type than asked for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

struct gguf_context;

namespace caravan::engine {

class GgufMetadata {
 public:
  // Header and metadata only, no tensor data. Errors: one line that names the file.
  static Result<GgufMetadata> read(const std::filesystem::path& path);
  ~GgufMetadata();
  GgufMetadata(GgufMetadata&& other) noexcept;
  GgufMetadata& operator=(GgufMetadata&&) = delete;

  // Absent keys and values of another kind are empty.
  [[nodiscard]] std::optional<std::string> text(std::string_view key) const;
  [[nodiscard]] std::optional<std::uint64_t> number(std::string_view key) const;  // a whole number, not negative
  [[nodiscard]] std::optional<bool> flag(std::string_view key) const;
  // An array of whole numbers or flags; a single one gives `count` times itself.
  [[nodiscard]] std::optional<std::vector<std::uint64_t>> numbers(std::string_view key, std::size_t count) const;
  [[nodiscard]] std::optional<std::vector<std::string_view>> texts(std::string_view key) const;
  [[nodiscard]] bool has(std::string_view key) const;
  [[nodiscard]] bool is_array(std::string_view key) const;
  [[nodiscard]] bool is_u16(std::string_view key) const;

  struct Tensor {
    std::string_view name;
    std::uint64_t bytes = 0;
    int type = 0;  // a ggml_type
  };
  [[nodiscard]] std::vector<Tensor> tensors() const;
  // Where the last tensor ends in the file.
  [[nodiscard]] std::uint64_t end() const;

 private:
  explicit GgufMetadata(gguf_context* context) : context_(context) {}
  [[nodiscard]] std::int64_t find(std::string_view key) const;  // -1: absent

  gguf_context* context_;
};

}  // namespace caravan::engine
