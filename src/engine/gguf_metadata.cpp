#include "engine/gguf_metadata.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <utility>

#include <ggml.h>
#include <gguf.h>

#include "engine/backends.h"
#include "engine/model.h"

namespace caravan::engine {
namespace {

// ggml compares every key and every tensor name with all before it, so counts are bounded before it reads any. The
// largest models have a few thousand tensors and a hundred keys.
constexpr std::uint64_t tensors_max = 65536;
constexpr std::uint64_t keys_max = 16384;
constexpr std::uint32_t version_least = 2;

struct Header {
  std::array<char, 4> magic;
  std::uint32_t version;
  std::uint64_t tensors;
  std::uint64_t keys;
};
static_assert(sizeof(Header) == 24);

Status check_header(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(ErrorCode::io, "{}: cannot be read; check its permissions", path.string());
  Header header{};
  file.read(reinterpret_cast<char*>(&header), sizeof(header));
  const auto bytes = file.gcount();
  if (bytes < 4 || std::string_view(header.magic.data(), 4) != "GGUF") {
    return fail(ErrorCode::invalid_argument, "{}: not a GGUF file (it does not begin with \"GGUF\")", path.string());
  }
  if (bytes < static_cast<std::streamsize>(sizeof(header))) {
    return fail(ErrorCode::invalid_argument, "{}: truncated: {} bytes are no GGUF header; fetch it again",
                path.string(), bytes);
  }
  if (header.version < version_least || header.version > GGUF_VERSION) {
    const bool swapped = (header.version & 0xFFFF) == 0;
    return fail(ErrorCode::unsupported, "{}: GGUF version {} is not supported; versions {} to {} are{}", path.string(),
                header.version, version_least, GGUF_VERSION, swapped ? " (the file seems to be big-endian)" : "");
  }
  if (header.tensors > tensors_max || header.keys > keys_max) {
    return fail(ErrorCode::invalid_argument,
                "{}: damaged: it claims {} tensors and {} metadata keys (at most {} and {} can be); fetch it again",
                path.string(), header.tensors, header.keys, tensors_max, keys_max);
  }
  return {};
}

template <class Value>
std::uint64_t element(const void* data, std::size_t index) {
  Value value;
  std::memcpy(&value, static_cast<const char*>(data) + index * sizeof(Value), sizeof(Value));
  return value < 0 ? UINT64_MAX : static_cast<std::uint64_t>(value);
}

// A whole number of any of GGUF's types; negative ones are UINT64_MAX.
std::optional<std::uint64_t> whole_number(gguf_type type, const void* data, std::size_t index) {
  switch (type) {
    case GGUF_TYPE_BOOL:
    case GGUF_TYPE_UINT8:
      return element<std::uint8_t>(data, index);
    case GGUF_TYPE_INT8:
      return element<std::int8_t>(data, index);
    case GGUF_TYPE_UINT16:
      return element<std::uint16_t>(data, index);
    case GGUF_TYPE_INT16:
      return element<std::int16_t>(data, index);
    case GGUF_TYPE_UINT32:
      return element<std::uint32_t>(data, index);
    case GGUF_TYPE_INT32:
      return element<std::int32_t>(data, index);
    case GGUF_TYPE_UINT64:
      return element<std::uint64_t>(data, index);
    case GGUF_TYPE_INT64:
      return element<std::int64_t>(data, index);
    default:
      return std::nullopt;
  }
}

}  // namespace

Result<GgufMetadata> GgufMetadata::read(const std::filesystem::path& path) {
  if (const Status status = check_header(path); !status) return std::unexpected(status.error());
  load_backends();  // routes ggml's log into ours
  const ComplaintRecorder complaints;
  gguf_context* context = gguf_init_from_file(path.c_str(), {.no_alloc = true, .ctx = nullptr});
  if (context == nullptr) {
    const std::string reason = complaints.first();
    return fail(ErrorCode::invalid_argument, "{}: damaged or truncated: {}; fetch it again", path.string(),
                reason.empty() ? "its metadata cannot be read" : reason);
  }
  return GgufMetadata(context);
}

GgufMetadata::~GgufMetadata() {
  if (context_ != nullptr) gguf_free(context_);
}
GgufMetadata::GgufMetadata(GgufMetadata&& other) noexcept : context_(std::exchange(other.context_, nullptr)) {}

std::int64_t GgufMetadata::find(std::string_view key) const {
  return gguf_find_key(context_, std::string(key).c_str());
}
bool GgufMetadata::has(std::string_view key) const { return find(key) >= 0; }
bool GgufMetadata::is_array(std::string_view key) const {
  const std::int64_t id = find(key);
  return id >= 0 && gguf_get_kv_type(context_, id) == GGUF_TYPE_ARRAY;
}
bool GgufMetadata::is_u16(std::string_view key) const {
  const std::int64_t id = find(key);
  return id >= 0 && gguf_get_kv_type(context_, id) == GGUF_TYPE_UINT16;
}

std::optional<std::string> GgufMetadata::text(std::string_view key) const {
  const std::int64_t id = find(key);
  if (id < 0 || gguf_get_kv_type(context_, id) != GGUF_TYPE_STRING) return std::nullopt;
  return gguf_get_val_str(context_, id);
}

std::optional<std::uint64_t> GgufMetadata::number(std::string_view key) const {
  const std::int64_t id = find(key);
  if (id < 0) return std::nullopt;
  const gguf_type type = gguf_get_kv_type(context_, id);
  if (type == GGUF_TYPE_ARRAY || type == GGUF_TYPE_STRING || type == GGUF_TYPE_BOOL) return std::nullopt;
  return whole_number(type, gguf_get_val_data(context_, id), 0);
}

std::optional<bool> GgufMetadata::flag(std::string_view key) const {
  const std::int64_t id = find(key);
  if (id < 0 || gguf_get_kv_type(context_, id) != GGUF_TYPE_BOOL) return std::nullopt;
  return gguf_get_val_bool(context_, id);
}

std::optional<std::vector<std::uint64_t>> GgufMetadata::numbers(std::string_view key, std::size_t count) const {
  if (const auto single = number(key)) return std::vector<std::uint64_t>(count, *single);
  const std::int64_t id = find(key);
  if (id < 0 || gguf_get_kv_type(context_, id) != GGUF_TYPE_ARRAY) return std::nullopt;
  const gguf_type type = gguf_get_arr_type(context_, id);
  if (type == GGUF_TYPE_STRING) return std::nullopt;
  std::vector<std::uint64_t> values(gguf_get_arr_n(context_, id));
  const void* data = gguf_get_arr_data(context_, id);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto value = whole_number(type, data, i);
    if (!value) return std::nullopt;
    values[i] = *value;
  }
  return values;
}

std::optional<std::vector<std::string_view>> GgufMetadata::texts(std::string_view key) const {
  const std::int64_t id = find(key);
  if (id < 0 || gguf_get_kv_type(context_, id) != GGUF_TYPE_ARRAY ||
      gguf_get_arr_type(context_, id) != GGUF_TYPE_STRING) {
    return std::nullopt;
  }
  std::vector<std::string_view> values(gguf_get_arr_n(context_, id));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = gguf_get_arr_str(context_, id, i);
  return values;
}

std::vector<GgufMetadata::Tensor> GgufMetadata::tensors() const {
  std::vector<Tensor> all(static_cast<std::size_t>(gguf_get_n_tensors(context_)));
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto id = static_cast<std::int64_t>(i);
    all[i] = {.name = gguf_get_tensor_name(context_, id),
              .bytes = gguf_get_tensor_size(context_, id),
              .type = gguf_get_tensor_type(context_, id)};
  }
  return all;
}

std::uint64_t GgufMetadata::end() const {
  std::uint64_t last = 0;
  for (std::int64_t i = 0; i < gguf_get_n_tensors(context_); ++i) {
    last = std::max<std::uint64_t>(last, gguf_get_tensor_offset(context_, i) + gguf_get_tensor_size(context_, i));
  }
  return gguf_get_data_offset(context_) + last;
}

}  // namespace caravan::engine
