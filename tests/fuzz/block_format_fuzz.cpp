// Any bytes as a frame: what is accepted seals again to the same bytes, and decodes within its bound.
//
// The first byte says what is put right before the frame is read, so that mutations get past the checks that random
// bytes never pass: bit 0 the checksum, bit 1 the block id.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include <xxhash.h>

#include "base/check.h"
#include "kv/block.h"
#include "kv/block_format.h"

namespace {

using namespace caravan::kv;
using Buffer = std::vector<std::byte>;

constexpr std::uint64_t raw_bytes_max = std::uint64_t{1} << 20U;
constexpr std::size_t at_id = 104;
constexpr std::size_t at_checksum = 136;

void put_id_right(Buffer& frame) {
  const auto header = peek_frame(frame);
  if (!header) return;
  const BlockId block = block_id(header->parent, header->tokens);
  const BlockId id = header->checkpoint ? state_id(block) : block;
  std::memcpy(frame.data() + at_id, id.bytes.data(), id.bytes.size());
}

void put_checksum_right(Buffer& frame) {
  XXH128_canonical_t sum;
  const std::size_t end = at_checksum + sizeof(sum);
  if (frame.size() < end) return;
  Buffer hashed(frame.begin(), frame.begin() + at_checksum);
  hashed.insert(hashed.end(), frame.begin() + end, frame.end());
  XXH128_canonicalFromHash(&sum, XXH3_128bits(hashed.data(), hashed.size()));
  std::memcpy(frame.data() + at_checksum, &sum, sizeof(sum));
}

Buffer sealed_again(const Frame& frame) {
  Buffer again(frame_bytes(frame.header.tokens.size(), frame.payload.size()));
  std::ranges::copy(frame.payload, again.begin() + header_bytes(frame.header.tokens.size()));
  seal_frame(again, frame.header);
  return again;
}

void check_decoding(const Frame& frame) {
  const auto raw = decompress_frame(frame, raw_bytes_max);
  if (!raw) {
    CHECK(frame.header.codec == Codec::zstd || frame.header.raw_bytes > raw_bytes_max);
    return;
  }
  const auto opened = open_frame(*raw, frame.header.namespace_id, frame.header.id);
  CHECK(opened && opened->header.codec == Codec::raw);
  CHECK(opened->payload.size() == frame.header.raw_bytes && frame.header.raw_bytes <= raw_bytes_max);
  const Buffer compressed = compress_frame(*raw, 1);
  CHECK(compressed.size() <= raw->size());
  const auto reopened = open_frame(compressed);
  CHECK(reopened && decompress_frame(*reopened, raw_bytes_max) == *raw);
}

}  // namespace

// NOLINTNEXTLINE(readability-identifier-naming): libFuzzer's
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const Bytes given = std::as_bytes(std::span(data, size)).subspan(1);
  Buffer frame(given.begin(), given.end());
  if ((data[0] & 2U) != 0) put_id_right(frame);
  if ((data[0] & 1U) != 0) put_checksum_right(frame);

  const auto bytes = measure_frame(frame);
  const auto header = peek_frame(frame);
  const auto opened = open_frame(frame);
  CHECK(!header || bytes);
  CHECK(!opened || (header && opened->header == *header && *bytes == frame.size()));
  if (!opened) return 0;
  CHECK(sealed_again(*opened) == frame);
  CHECK(open_frame(frame, header->namespace_id, header->id));
  BlockId other = header->namespace_id;
  other.bytes[31] ^= 1U;
  CHECK(!open_frame(frame, other, header->id));
  CHECK(!open_frame(frame, header->namespace_id, header->parent));
  check_decoding(*opened);
  return 0;
}
