// The frame that carries a block: the same bytes in the host tier, the store, on the wire and in an export.
// docs/block_format.md has the byte table; block_format_test.cpp the golden file.
//
//   offset  bytes  field (little-endian)
//        0      4  magic "CVB1"
//        4      2  version, 1
//        6      2  codec: 0 raw, 1 zstd (one zstd frame that tells its content's size)
//        8      4  flags: bit 0 checkpoint (a whole state, not the KV of these tokens alone); others 0
//       12      4  header bytes: fields, tokens and zeros up to a multiple of 64
//       16      4  tokens
//       20      4  0
//       24      8  raw bytes: of the payload, decoded
//       32      8  stored bytes: of the payload as it stands here
//       40     32  namespace id
//       72     32  parent id
//      104     32  block id
//      136     16  XXH3-128 over header (this field left out) and stored payload
//      152   4 x n token ids
//        …         zeros, then the payload at `header bytes`
//
// The payload is opaque to all but engine/snapshot. Nothing here trusts a byte: a frame from disk, peers or clients is
// checked whole before any of it is used. Pure; thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "kv/block.h"

namespace caravan::kv {

using Bytes = std::span<const std::byte>;

inline constexpr std::uint16_t frame_version = 1;
inline constexpr std::size_t frame_prefix_bytes = 152;  // the fields in front of the tokens; enough to measure a frame
inline constexpr std::uint32_t block_tokens_max = 4096;
inline constexpr std::uint64_t frame_bytes_max = std::uint64_t{1} << 32U;  // a peer that announces more is not believed

enum class Codec : std::uint16_t { raw = 0, zstd = 1 };

// What a frame says, beside its payload.
struct FrameHeader {
  Codec codec = Codec::raw;
  bool checkpoint = false;
  std::uint64_t raw_bytes = 0;
  std::uint64_t stored_bytes = 0;
  BlockId namespace_id;
  BlockId parent;
  BlockId id;  // of the frame: block_id(parent, tokens), or state_id of that for a checkpoint
  std::vector<Token> tokens;

  friend bool operator==(const FrameHeader&, const FrameHeader&) = default;
};

// Why a frame was not taken; the label of caravan_block_failures_total.
enum class FrameFault {
  truncated,  // shorter than it says, or than a header
  foreign,    // other magic, other namespace, another block's id
  newer,      // a version or codec that this build does not know
  damaged,    // checksum, sizes, flags or zeros do not fit
};
const char* name_of(FrameFault fault);

template <class T>
using FrameResult = std::expected<T, FrameFault>;

// Of at most block_tokens_max tokens.
[[nodiscard]] std::uint32_t header_bytes(std::size_t tokens);
[[nodiscard]] std::uint64_t frame_bytes(std::size_t tokens, std::uint64_t payload_bytes);

// Two-phase writing without a copy: the payload is written into place first (`frame` is frame_bytes() long, the payload
// lies at header_bytes()), then sealed: header and checksum are written in front of it. header.raw_bytes,
// stored_bytes must fit `frame`.
void seal_frame(std::span<std::byte> frame, const FrameHeader& header);

// The header and checks on sizes, without the checksum: enough to find a frame's end in a stream of them.
FrameResult<FrameHeader> peek_frame(Bytes frame);
// Length of the whole frame, from its first frame_prefix_bytes or more.
FrameResult<std::uint64_t> measure_frame(Bytes begin);

// A whole frame, checked: sizes, checksum, that its id follows from parent and tokens, and that it is what was asked
// for. `payload` points into `frame` (raw) or must be decoded (zstd).
struct Frame {
  FrameHeader header;
  Bytes payload;
};
FrameResult<Frame> open_frame(Bytes frame, const BlockId& namespace_id, const BlockId& id);
FrameResult<Frame> open_frame(Bytes frame);  // of any namespace: import, verify

// zstd for what travels or lies long. What comes out is a sealed frame; `raw_frame` itself where zstd saves nothing.
std::vector<std::byte> compress_frame(Bytes raw_frame, int level);
// A raw frame again, of at most so many payload bytes: a few stored bytes may announce gigabytes. Errors: damaged.
FrameResult<std::vector<std::byte>> decompress_frame(const Frame& frame, std::uint64_t raw_bytes_max);

}  // namespace caravan::kv
