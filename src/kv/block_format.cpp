#include "kv/block_format.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <type_traits>

#include <xxhash.h>
#include <zstd.h>

#include "base/check.h"

namespace caravan::kv {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are written and read as little-endian memory");

constexpr std::array<char, 4> magic = {'C', 'V', 'B', '1'};
constexpr std::size_t payload_alignment = 64;
constexpr std::uint32_t flag_checkpoint = 1;

// Where each field begins.
constexpr std::size_t at_magic = 0;
constexpr std::size_t at_version = 4;
constexpr std::size_t at_codec = 6;
constexpr std::size_t at_flags = 8;
constexpr std::size_t at_header_bytes = 12;
constexpr std::size_t at_tokens_count = 16;
constexpr std::size_t at_reserved = 20;
constexpr std::size_t at_raw_bytes = 24;
constexpr std::size_t at_stored_bytes = 32;
constexpr std::size_t at_namespace = 40;
constexpr std::size_t at_parent = 72;
constexpr std::size_t at_id = 104;
constexpr std::size_t at_checksum = 136;
constexpr std::size_t at_tokens = 152;
static_assert(at_tokens == frame_prefix_bytes);

template <class T>
T read(Bytes frame, std::size_t offset) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, frame.data() + offset, sizeof(value));
  return value;
}

template <class T>
void write(std::span<std::byte> frame, std::size_t offset, const T& value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memcpy(frame.data() + offset, &value, sizeof(value));
}

using Checksum = XXH128_canonical_t;  // 16 bytes, the same on every machine

Checksum checksum(Bytes frame) {
  const std::unique_ptr<XXH3_state_t, decltype(&XXH3_freeState)> state(XXH3_createState(), &XXH3_freeState);
  CHECK(state != nullptr);
  XXH3_128bits_reset(state.get());
  XXH3_128bits_update(state.get(), frame.data(), at_checksum);
  XXH3_128bits_update(state.get(), frame.data() + at_tokens, frame.size() - at_tokens);
  Checksum sum;
  XXH128_canonicalFromHash(&sum, XXH3_128bits_digest(state.get()));
  return sum;
}

// What a payload may have, stored or decoded, behind the header of so many tokens: each of its frames can be sealed.
std::uint64_t payload_bytes_max(std::size_t tokens) { return frame_bytes_max - header_bytes(tokens); }

bool all_zero(Bytes bytes) {
  return std::ranges::all_of(bytes, [](std::byte each) { return each == std::byte{0}; });
}

}  // namespace

const char* name_of(FrameFault fault) {
  switch (fault) {
    case FrameFault::truncated:
      return "truncated";
    case FrameFault::foreign:
      return "foreign";
    case FrameFault::newer:
      return "newer";
    case FrameFault::damaged:
      return "damaged";
  }
  return "unknown";
}

std::uint32_t header_bytes(std::size_t tokens) {
  CHECK(tokens <= block_tokens_max);
  const std::size_t bytes = at_tokens + tokens * sizeof(Token);
  return static_cast<std::uint32_t>((bytes + payload_alignment - 1) / payload_alignment * payload_alignment);
}

std::uint64_t frame_bytes(std::size_t tokens, std::uint64_t payload_bytes) {
  return header_bytes(tokens) + payload_bytes;
}

void seal_frame(std::span<std::byte> frame, const FrameHeader& header) {
  const std::uint32_t begin = header_bytes(header.tokens.size());
  CHECK(!header.tokens.empty());
  CHECK(header.raw_bytes <= payload_bytes_max(header.tokens.size()) && frame.size() <= frame_bytes_max);
  CHECK(frame.size() == begin + header.stored_bytes);
  CHECK(header.codec != Codec::raw || header.raw_bytes == header.stored_bytes);
  std::ranges::fill(frame.first(begin), std::byte{0});
  write(frame, at_magic, magic);
  write(frame, at_version, frame_version);
  write(frame, at_codec, header.codec);
  write(frame, at_flags, header.checkpoint ? flag_checkpoint : 0U);
  write(frame, at_header_bytes, begin);
  write(frame, at_tokens_count, static_cast<std::uint32_t>(header.tokens.size()));
  write(frame, at_raw_bytes, header.raw_bytes);
  write(frame, at_stored_bytes, header.stored_bytes);
  write(frame, at_namespace, header.namespace_id.bytes);
  write(frame, at_parent, header.parent.bytes);
  write(frame, at_id, header.id.bytes);
  std::memcpy(frame.data() + at_tokens, header.tokens.data(), header.tokens.size() * sizeof(Token));
  write(frame, at_checksum, checksum(frame));
}

FrameResult<std::uint64_t> measure_frame(Bytes begin) {
  if (begin.size() < frame_prefix_bytes) return std::unexpected(FrameFault::truncated);
  if (read<std::array<char, 4>>(begin, at_magic) != magic) return std::unexpected(FrameFault::foreign);
  if (read<std::uint16_t>(begin, at_version) != frame_version) return std::unexpected(FrameFault::newer);
  if (read<std::uint16_t>(begin, at_codec) > static_cast<std::uint16_t>(Codec::zstd)) {
    return std::unexpected(FrameFault::newer);
  }
  const auto tokens = read<std::uint32_t>(begin, at_tokens_count);
  const auto raw = read<std::uint64_t>(begin, at_raw_bytes);
  const auto stored = read<std::uint64_t>(begin, at_stored_bytes);
  const bool fits = (read<std::uint32_t>(begin, at_flags) & ~flag_checkpoint) == 0 && tokens > 0 &&
                    tokens <= block_tokens_max && read<std::uint32_t>(begin, at_header_bytes) == header_bytes(tokens) &&
                    read<std::uint32_t>(begin, at_reserved) == 0 && raw <= payload_bytes_max(tokens) &&
                    stored <= payload_bytes_max(tokens) &&
                    (read<Codec>(begin, at_codec) != Codec::raw || raw == stored);
  if (!fits) return std::unexpected(FrameFault::damaged);
  return frame_bytes(tokens, stored);
}

FrameResult<FrameHeader> peek_frame(Bytes frame) {
  const auto bytes = measure_frame(frame);
  if (!bytes) return std::unexpected(bytes.error());
  const std::uint32_t begin = read<std::uint32_t>(frame, at_header_bytes);
  if (frame.size() < begin) return std::unexpected(FrameFault::truncated);
  FrameHeader header{.codec = read<Codec>(frame, at_codec),
                     .checkpoint = (read<std::uint32_t>(frame, at_flags) & flag_checkpoint) != 0,
                     .raw_bytes = read<std::uint64_t>(frame, at_raw_bytes),
                     .stored_bytes = read<std::uint64_t>(frame, at_stored_bytes),
                     .namespace_id = read<BlockId>(frame, at_namespace),
                     .parent = read<BlockId>(frame, at_parent),
                     .id = read<BlockId>(frame, at_id),
                     .tokens = std::vector<Token>(read<std::uint32_t>(frame, at_tokens_count))};
  std::memcpy(header.tokens.data(), frame.data() + at_tokens, header.tokens.size() * sizeof(Token));
  return header;
}

FrameResult<Frame> open_frame(Bytes frame) {
  auto header = peek_frame(frame);
  if (!header) return std::unexpected(header.error());
  const std::uint32_t begin = header_bytes(header->tokens.size());
  if (frame.size() < begin + header->stored_bytes) return std::unexpected(FrameFault::truncated);
  if (frame.size() > begin + header->stored_bytes) return std::unexpected(FrameFault::damaged);
  const std::size_t padding = at_tokens + header->tokens.size() * sizeof(Token);
  if (!all_zero(frame.subspan(padding, begin - padding))) return std::unexpected(FrameFault::damaged);
  const Checksum sum = checksum(frame);
  if (std::memcmp(&sum, frame.data() + at_checksum, sizeof(sum)) != 0) return std::unexpected(FrameFault::damaged);
  const BlockId block = block_id(header->parent, header->tokens);
  if (header->id != (header->checkpoint ? state_id(block) : block)) return std::unexpected(FrameFault::foreign);
  return Frame{.header = std::move(*header), .payload = frame.subspan(begin)};
}

FrameResult<Frame> open_frame(Bytes frame, const BlockId& namespace_id, const BlockId& id) {
  auto opened = open_frame(frame);
  if (!opened) return opened;
  const bool asked_for = opened->header.id == id && opened->header.namespace_id == namespace_id;
  if (!asked_for) return std::unexpected(FrameFault::foreign);
  return opened;
}

std::vector<std::byte> compress_frame(Bytes raw_frame, int level) {
  auto header = peek_frame(raw_frame);
  CHECK(header && header->codec == Codec::raw);
  const std::uint32_t begin = header_bytes(header->tokens.size());
  const Bytes payload = raw_frame.subspan(begin);
  CHECK(payload.size() == header->stored_bytes);
  std::vector<std::byte> frame(begin + ZSTD_compressBound(payload.size()));
  const std::size_t stored =
      ZSTD_compress(frame.data() + begin, frame.size() - begin, payload.data(), payload.size(), level);
  CHECK(ZSTD_isError(stored) == 0U);
  if (stored >= payload.size()) return {raw_frame.begin(), raw_frame.end()};
  frame.resize(begin + stored);
  header->codec = Codec::zstd;
  header->stored_bytes = stored;
  seal_frame(frame, *header);
  return frame;
}

FrameResult<std::vector<std::byte>> decompress_frame(const Frame& frame, std::uint64_t raw_bytes_max) {
  FrameHeader header = frame.header;
  const std::uint32_t begin = header_bytes(header.tokens.size());
  if (header.raw_bytes > raw_bytes_max) return std::unexpected(FrameFault::damaged);
  // Before any memory is taken for it, both places that tell its size must agree.
  const bool agrees = header.codec == Codec::raw ||
                      ZSTD_getFrameContentSize(frame.payload.data(), frame.payload.size()) == header.raw_bytes;
  if (!agrees) return std::unexpected(FrameFault::damaged);
  std::vector<std::byte> raw(begin + header.raw_bytes);
  if (header.codec == Codec::raw) {
    std::ranges::copy(frame.payload, raw.begin() + begin);
  } else {
    const std::size_t bytes =
        ZSTD_decompress(raw.data() + begin, header.raw_bytes, frame.payload.data(), frame.payload.size());
    if (ZSTD_isError(bytes) != 0U || bytes != header.raw_bytes) return std::unexpected(FrameFault::damaged);
  }
  header.codec = Codec::raw;
  header.stored_bytes = header.raw_bytes;
  seal_frame(raw, header);
  return raw;
}

}  // namespace caravan::kv
