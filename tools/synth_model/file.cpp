#include "file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>
#include <system_error>
#include <thread>

#include <ggml.h>
#include <gguf.h>

#include "base/check.h"

namespace caravan::synth {
namespace {

struct FreeGguf {
  void operator()(gguf_context* file) const { gguf_free(file); }
};
struct FreeGgml {
  void operator()(ggml_context* context) const { ggml_free(context); }
};
struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

// Counter-based: the value at an index does not depend on what was drawn before, so rows can be made in any order.
std::uint64_t mix(std::uint64_t value) {
  value += 0x9E3779B97F4A7C15;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

std::uint64_t stream_of(std::uint64_t seed, std::string_view name) {
  std::uint64_t hash = mix(seed);
  for (const char c : name) hash = mix(hash ^ static_cast<unsigned char>(c));
  return hash;
}

// Close to normal, with deviation 1: the sum of four uniform numbers.
float normal(std::uint64_t bits) {
  const auto part = [&](int shift) { return static_cast<float>((bits >> shift) & 0xFFFF); };
  return (part(0) + part(16) + part(32) + part(48)) * (1.7320508F / 65536) - 2 * 1.7320508F;
}

struct Rows {
  std::int64_t count;
  std::int64_t length;
  std::size_t bytes;  // of one
};

Rows rows_of(const TensorPlan& tensor) {
  Rows rows{.count = 1, .length = tensor.size[0], .bytes = ggml_row_size(tensor.type, tensor.size[0])};
  for (std::size_t i = 1; i < tensor.size.size(); ++i) rows.count *= tensor.size[i];
  return rows;
}

void fill_row(const TensorPlan& tensor, std::uint64_t stream, std::int64_t row, std::vector<float>& values) {
  const auto length = static_cast<std::int64_t>(values.size());
  switch (tensor.fill) {
    case Fill::constant:
      std::ranges::fill(values, tensor.scale);
      return;
    case Fill::decay:
      for (std::int64_t i = 0; i < length; ++i) values[i] = -static_cast<float>(length == 1 ? row + 1 : i + 1);
      return;
    case Fill::random:
      break;
  }
  if (std::ranges::find(tensor.zero_rows, row) != tensor.zero_rows.end()) {
    std::ranges::fill(values, 0.0F);
    return;
  }
  const auto first = static_cast<std::uint64_t>(row) * values.size();
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = tensor.scale * normal(mix(stream + first + i));
}

std::vector<char> tensor_bytes(const TensorPlan& tensor, std::uint64_t seed, unsigned threads) {
  const Rows rows = rows_of(tensor);
  std::vector<char> bytes(rows.bytes * static_cast<std::size_t>(rows.count));
  const std::uint64_t stream = stream_of(seed, tensor.name);
  const auto make = [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> values(static_cast<std::size_t>(rows.length));
    for (std::int64_t row = begin; row < end; ++row) {
      fill_row(tensor, stream, row, values);
      ggml_quantize_chunk(tensor.type, values.data(), bytes.data() + rows.bytes * static_cast<std::size_t>(row), 0, 1,
                          rows.length, nullptr);
    }
  };
  const std::int64_t share = (rows.count + threads - 1) / threads;
  if (bytes.size() < (1U << 16)) {
    make(0, rows.count);
    return bytes;
  }
  std::vector<std::jthread> workers;
  for (std::int64_t begin = 0; begin < rows.count; begin += share) {
    workers.emplace_back(make, begin, std::min(begin + share, rows.count));
  }
  workers.clear();  // joins
  return bytes;
}

void set_meta(gguf_context* file, const std::string& key, const MetaValue& value) {
  const char* name = key.c_str();
  if (const auto* number = std::get_if<std::uint32_t>(&value)) gguf_set_val_u32(file, name, *number);
  if (const auto* real = std::get_if<float>(&value)) gguf_set_val_f32(file, name, *real);
  if (const auto* flag = std::get_if<bool>(&value)) gguf_set_val_bool(file, name, *flag);
  if (const auto* text = std::get_if<std::string>(&value)) gguf_set_val_str(file, name, text->c_str());
  if (const auto* list = std::get_if<std::vector<std::uint32_t>>(&value)) {
    gguf_set_arr_data(file, name, GGUF_TYPE_UINT32, list->data(), list->size());
  }
}

std::unexpected<Error> io_error(const std::filesystem::path& path, const char* what) {
  return fail(ErrorCode::io, "{}: cannot {}: {}", path.string(), what, std::strerror(errno));
}

}  // namespace

Result<Written> write_model(const ModelPlan& plan, const Tokenizer& tokenizer, std::uint64_t seed, unsigned threads,
                            const std::filesystem::path& path) {
  const std::unique_ptr<gguf_context, FreeGguf> meta(gguf_init_empty());
  for (const auto& [key, value] : plan.metadata) set_meta(meta.get(), key, value);
  write_tokenizer(meta.get(), tokenizer);
  const std::unique_ptr<ggml_context, FreeGgml> tensors(
      ggml_init({.mem_size = plan.tensors.size() * ggml_tensor_overhead(), .mem_buffer = nullptr, .no_alloc = true}));
  for (const TensorPlan& tensor : plan.tensors) {
    ggml_tensor* made =
        ggml_new_tensor(tensors.get(), tensor.type, static_cast<int>(tensor.size.size()), tensor.size.data());
    ggml_set_name(made, tensor.name.c_str());
    gguf_add_tensor(meta.get(), made);
  }

  const std::filesystem::path partial = path.string() + ".partial";
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(partial.c_str(), "wb"));
  if (!file) return io_error(path, "write the file");
  const auto put = [&](const void* data, std::size_t size) { return std::fwrite(data, 1, size, file.get()) == size; };

  std::vector<char> header(gguf_get_meta_size(meta.get()));
  gguf_get_meta_data(meta.get(), header.data());
  bool good = put(header.data(), header.size());
  std::uint64_t total = header.size();
  constexpr std::array<char, 64> padding{};
  const std::size_t alignment = gguf_get_alignment(meta.get());
  CHECK(alignment <= padding.size());
  for (const TensorPlan& tensor : plan.tensors) {
    if (!good) break;
    const std::vector<char> bytes = tensor_bytes(tensor, seed, threads);
    const std::size_t rest = (alignment - bytes.size() % alignment) % alignment;
    good = put(bytes.data(), bytes.size()) && put(padding.data(), rest);
    total += bytes.size() + rest;
  }
  good = good && std::fflush(file.get()) == 0;
  std::error_code problem;
  if (good) std::filesystem::rename(partial, path, problem);
  if (!good || problem) {
    if (problem) errno = problem.value();
    auto error = io_error(path, "write the file");
    std::filesystem::remove(partial, problem);
    return error;
  }
  return Written{total};
}

}  // namespace caravan::synth
