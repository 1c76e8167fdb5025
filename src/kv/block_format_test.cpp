#include "kv/block_format.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <random>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <xxhash.h>

#include "kv/host_tier.h"

namespace caravan::kv {
namespace {

using Buffer = std::vector<std::byte>;
using Frames = std::vector<Buffer>;

std::vector<Token> counted(Token begin, std::size_t length) {
  std::vector<Token> tokens(length);
  std::iota(tokens.begin(), tokens.end(), begin);
  return tokens;
}

// Of the golden frames.
BlockId golden_space() { return Namespace{.model = std::string(64, 'a'), .type_k = "f16", .type_v = "f16"}.id(); }
std::vector<BlockId> golden_chain() { return chain(golden_space(), counted(0, 192), 64); }

Buffer seal(const FrameHeader& header, Bytes payload) {
  Buffer frame(frame_bytes(header.tokens.size(), payload.size()));
  std::ranges::copy(payload, frame.begin() + header_bytes(header.tokens.size()));
  seal_frame(frame, header);
  return frame;
}

FrameHeader header_of(const BlockId& space, const BlockId& parent, std::vector<Token> tokens, std::uint64_t bytes) {
  const BlockId id = block_id(parent, tokens);
  return {.raw_bytes = bytes,
          .stored_bytes = bytes,
          .namespace_id = space,
          .parent = parent,
          .id = id,
          .tokens = std::move(tokens)};
}

// ---- the golden frames: tests/testdata/block_v1.py wrote them, which shares nothing with the code here ----

Buffer golden(const std::string& name) {
  std::ifstream file(std::string(CARAVAN_SOURCE_DIR) + "/tests/testdata/" + name, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const Bytes bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

TEST(BlockFormat, TheGoldenFrameIsReadAndWrittenByteForByte) {
  const std::vector<BlockId> ids = golden_chain();
  const Buffer frame = golden("block_v1.frame");
  const auto opened = open_frame(frame, golden_space(), ids[1]);
  ASSERT_TRUE(opened) << name_of(opened.error());
  EXPECT_EQ(opened->header, header_of(golden_space(), ids[0], counted(64, 64), 1000));
  ASSERT_EQ(opened->payload.size(), 1000U);
  for (std::size_t i = 0; i < 1000; ++i) ASSERT_EQ(opened->payload[i], std::byte(7 * i)) << i;
  EXPECT_EQ(seal(opened->header, opened->payload), frame);
}

TEST(BlockFormat, TheGoldenCompressedCheckpointIsReadAndWrittenByteForByte) {
  const std::vector<BlockId> ids = golden_chain();
  const Buffer frame = golden("block_v1_zstd.frame");
  const auto opened = open_frame(frame, golden_space(), state_id(ids[2]));
  ASSERT_TRUE(opened) << name_of(opened.error());
  EXPECT_EQ(opened->header.codec, Codec::zstd);
  EXPECT_TRUE(opened->header.checkpoint);
  EXPECT_EQ(seal(opened->header, opened->payload), frame);
  const auto raw = decompress_frame(*opened, 200);
  ASSERT_TRUE(raw) << name_of(raw.error());
  const auto again = open_frame(*raw, golden_space(), state_id(ids[2]));
  ASSERT_TRUE(again);
  EXPECT_TRUE(std::ranges::equal(again->payload, Buffer(200, std::byte{42})));
}

// ---- round trips ----

struct Sample {
  FrameHeader header;
  Buffer payload;
};

Sample arbitrary_sample() {
  const auto bytes = [] {
    BlockId id;
    for (std::uint8_t& byte : id.bytes) byte = *rc::gen::arbitrary<std::uint8_t>();
    return id;
  };
  auto tokens = *rc::gen::nonEmpty(rc::gen::arbitrary<std::vector<Token>>());
  const auto few = *rc::gen::inRange(1, 257);  // different bytes: 1 compresses to nothing, 256 not at all
  std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
  Buffer payload(*rc::gen::inRange<std::size_t>(0, 20'000));
  for (std::byte& each : payload) each = std::byte(random() % few);
  FrameHeader header = header_of(bytes(), bytes(), std::move(tokens), payload.size());
  header.checkpoint = *rc::gen::arbitrary<bool>();
  if (header.checkpoint) header.id = state_id(header.id);
  return {.header = std::move(header), .payload = std::move(payload)};
}

TEST(BlockFormat, WhatWasSealedIsOpened) {
  EXPECT_TRUE(rc::check("open(seal(x)) == x", [] {
    const Sample sample = arbitrary_sample();
    const Buffer frame = seal(sample.header, sample.payload);
    const auto opened = open_frame(frame, sample.header.namespace_id, sample.header.id);
    RC_ASSERT(opened.has_value());
    RC_ASSERT((opened->header == sample.header));
    RC_ASSERT(std::ranges::equal(opened->payload, sample.payload));
    RC_ASSERT((peek_frame(Bytes(frame).first(frame.size() - sample.payload.size())) == sample.header));
    RC_ASSERT((measure_frame(Bytes(frame).first(frame_prefix_bytes)) == frame.size()));
  }));
}

TEST(BlockFormat, WhatWasCompressedIsDecompressedToTheSameFrame) {
  EXPECT_TRUE(rc::check("decompress(compress(x)) == x", [] {
    const Sample sample = arbitrary_sample();
    const Buffer frame = seal(sample.header, sample.payload);
    const Buffer compressed = compress_frame(frame, *rc::gen::inRange(1, 6));
    RC_ASSERT(compressed.size() <= frame.size());
    const auto opened = open_frame(compressed, sample.header.namespace_id, sample.header.id);
    RC_ASSERT(opened.has_value());
    RC_ASSERT((decompress_frame(*opened, sample.payload.size()) == frame));
    if (!sample.payload.empty()) RC_ASSERT(!decompress_frame(*opened, sample.payload.size() - 1));
  }));
}

TEST(BlockFormat, FramesBackToBackAreToldApart) {
  Buffer stream;
  Frames frames;
  for (const std::size_t payload : {0U, 1U, 63U, 64U, 5000U}) {
    frames.push_back(seal(header_of(golden_space(), golden_space(), counted(0, 1 + payload % 7), payload),
                          Buffer(payload, std::byte{9})));
    if (payload == 5000) frames.push_back(compress_frame(frames.back(), 1));
  }
  for (const Buffer& frame : frames) stream.insert(stream.end(), frame.begin(), frame.end());
  Bytes rest = stream;
  for (const Buffer& frame : frames) {
    const auto bytes = measure_frame(rest);
    ASSERT_TRUE(bytes);
    ASSERT_EQ(*bytes, frame.size());
    EXPECT_TRUE(open_frame(rest.first(*bytes)));
    rest = rest.subspan(*bytes);
  }
  EXPECT_TRUE(rest.empty());
}

// ---- damage (case 31): whatever is done to a good frame, no tier takes it ----

constexpr std::size_t damaged_tokens = 10;  // 152 + 40 bytes, so no padding; see `padded_tokens`
constexpr std::size_t padded_tokens = 64;
constexpr std::size_t damaged_payload = 20'000;
constexpr std::uint32_t flips_seed = 31;

Buffer good(std::size_t tokens = padded_tokens) {
  Buffer payload(damaged_payload);
  std::mt19937 random(7);
  for (std::byte& each : payload) each = std::byte(random() % 16);
  return seal(header_of(golden_space(), golden_space(), counted(0, tokens), payload.size()), payload);
}

template <class T>
Buffer with(Buffer frame, std::size_t offset, T value) {
  std::memcpy(frame.data() + offset, &value, sizeof(value));
  return frame;
}

// The checksum, put right: what a clumsy or hostile writer might send.
Buffer checked(Buffer frame) {
  Buffer hashed = frame;
  hashed.erase(hashed.begin() + 136, hashed.begin() + 152);
  XXH128_canonical_t sum;
  XXH128_canonicalFromHash(&sum, XXH3_128bits(hashed.data(), hashed.size()));
  std::memcpy(frame.data() + 136, &sum, sizeof(sum));
  return frame;
}

struct Damage {
  std::string name;
  std::vector<FrameFault> faults;  // any of them
  std::function<Frames()> frames;
};

Frames truncated_at(std::size_t begin, std::size_t end, std::size_t step) {
  Frames frames;
  const Buffer frame = good();
  for (std::size_t length = begin; length < std::min(end, frame.size()); length += step) {
    frames.emplace_back(frame.begin(), frame.begin() + static_cast<std::ptrdiff_t>(length));
  }
  return frames;
}

Frames with_flipped_bits() {
  Frames frames;
  std::mt19937 random(flips_seed);
  for (int i = 0; i < 200; ++i) {
    Buffer frame = good();
    // Every second one in the header, where bits mean most.
    const std::size_t bit = random() % (8 * (i % 2 == 0 ? header_bytes(padded_tokens) : frame.size()));
    frame[bit / 8] ^= std::byte(1U << bit % 8);
    frames.push_back(std::move(frame));
  }
  return frames;
}

Buffer with_layers_swapped() {
  Buffer frame = good();
  const auto first = frame.begin() + header_bytes(padded_tokens);
  std::swap_ranges(first, first + damaged_payload / 2, first + damaged_payload / 2);
  return frame;
}

Buffer compressed_with(std::size_t offset, std::uint64_t value) {
  return with(compress_frame(good(), 1), offset, value);
}

std::vector<Damage> damages() {
  using enum FrameFault;
  constexpr std::uint64_t most = UINT64_MAX;
  return {
      {"zero_length", {truncated}, [] { return Frames(1); }},
      {"truncated_within_its_header", {truncated}, [] { return truncated_at(0, header_bytes(padded_tokens) + 1, 1); }},
      {"truncated_at_every_page", {truncated}, [] { return truncated_at(4096, SIZE_MAX, 4096); }},
      {"truncated_by_a_byte", {truncated}, [] { return truncated_at(good().size() - 1, SIZE_MAX, 1); }},
      {"a_byte_too_long",
       {damaged},
       [] {
         Buffer frame = good();
         frame.push_back(std::byte{0});
         return Frames{frame, checked(frame)};
       }},
      {"flipped_bits", {truncated, foreign, newer, damaged}, with_flipped_bits},
      {"layers_swapped", {damaged}, [] { return Frames{with_layers_swapped()}; }},
      {"another_magic", {foreign}, [] { return Frames{checked(with(good(), 0, std::array{'G', 'G', 'U', 'F'}))}; }},
      {"zeros", {foreign}, [] { return Frames{Buffer(good().size())}; }},
      {"a_newer_version",
       {newer},
       [] { return Frames{checked(with(good(), 4, std::uint16_t{2})), with(good(), 4, std::uint16_t{0xFFFF})}; }},
      {"a_newer_codec", {newer}, [] { return Frames{checked(with(good(), 6, std::uint16_t{2}))}; }},
      {"unknown_flags",
       {damaged},
       [] {
         return Frames{checked(with(good(), 8, std::uint32_t{2})), checked(with(good(), 8, std::uint32_t{1} << 31U))};
       }},
      {"a_checkpoint_by_flag_alone", {foreign}, [] { return Frames{checked(with(good(), 8, std::uint32_t{1}))}; }},
      {"a_header_of_another_size",
       {damaged},
       [] {
         return Frames{checked(with(good(), 12, std::uint32_t{0})), checked(with(good(), 12, std::uint32_t{512})),
                       checked(with(good(), 12, std::uint32_t{0xFFFFFFC0}))};
       }},
      {"counts_that_cannot_be",
       {damaged},
       [] {
         Frames frames;
         for (const std::uint32_t count : {0U, 4097U, 1U << 31U, UINT32_MAX}) {
           frames.push_back(checked(with(good(), 16, count)));
           // With a header that fits the count where arithmetic wraps at 32 bits.
           frames.push_back(checked(with(frames.back(), 12, (152 + 4 * count + 63) / 64 * 64)));
         }
         return frames;
       }},
      {"one_token_less",  // within the same padding
       {damaged},
       [] { return Frames{checked(with(good(), 16, std::uint32_t{padded_tokens - 1}))}; }},
      {"a_reserved_word_set", {damaged}, [] { return Frames{checked(with(good(), 20, std::uint32_t{1}))}; }},
      {"sizes_that_overflow",
       {damaged},
       [] {
         Frames frames;
         for (const std::uint64_t size : {most, most - header_bytes(padded_tokens), most - 63, frame_bytes_max}) {
           frames.push_back(checked(with(with(good(), 24, size), 32, size)));
           frames.push_back(checked(compressed_with(24, size)));
           frames.push_back(checked(compressed_with(32, size)));
         }
         return frames;
       }},
      {"raw_and_stored_size_differ",
       {damaged},
       [] { return Frames{checked(with(good(), 24, std::uint64_t{damaged_payload - 1}))}; }},
      {"a_stored_size_beyond_the_end",
       {truncated},
       [] {
         constexpr std::uint64_t more = damaged_payload + 1;
         return Frames{checked(with(with(good(), 24, more), 32, more))};
       }},
      {"padding_that_is_not_zero",
       {damaged},
       [] {
         Buffer frame = good();
         frame[header_bytes(padded_tokens) - 1] = std::byte{1};
         return Frames{checked(frame)};
       }},
      {"another_namespace", {foreign}, [] { return Frames{checked(with(good(), 40, std::uint8_t{0}))}; }},
      {"another_parent", {foreign}, [] { return Frames{checked(with(good(), 72, std::uint8_t{0}))}; }},
      {"another_id", {foreign}, [] { return Frames{checked(with(good(), 104, std::uint8_t{0}))}; }},
      {"another_token", {foreign}, [] { return Frames{checked(with(good(), 152, Token{77}))}; }},
      {"another_block", {foreign}, [] { return Frames{good(damaged_tokens)}; }},
  };
}

class DamagedFrame : public testing::TestWithParam<Damage> {};

TEST_P(DamagedFrame, IsNotTaken) {
  const BlockId id = block_id(golden_space(), counted(0, padded_tokens));
  ASSERT_TRUE(open_frame(good(), golden_space(), id));
  ASSERT_EQ(checked(good()), good());
  HostTier host({.bytes_max = std::uint64_t{16} << 20U});
  const Frames frames = GetParam().frames();
  for (std::size_t i = 0; i < frames.size(); ++i) {
    SCOPED_TRACE(fmt::format("{} of {}, seed {}", i, frames.size(), flips_seed));
    const auto opened = open_frame(frames[i], golden_space(), id);
    ASSERT_FALSE(opened);
    EXPECT_THAT(GetParam().faults, testing::Contains(opened.error())) << name_of(opened.error());
    EXPECT_TRUE(measure_frame(frames[i]) || !peek_frame(frames[i]));
    // A host tier is asked for no namespace: all its frames are this process's own.
    if (GetParam().name != "another_namespace") EXPECT_FALSE(host.put(id, frames[i]));
  }
  EXPECT_FALSE(frames.empty());
  EXPECT_TRUE(host.put(id, good()));
}

INSTANTIATE_TEST_SUITE_P(Case31, DamagedFrame, testing::ValuesIn(damages()),
                         [](const auto& info) { return info.param.name; });

// ---- damage that only decoding finds ----

// A frame whose checksum is right, and whose stored payload is whatever it is.
FrameResult<Buffer> decoded(Bytes stored, std::uint64_t raw_bytes, std::uint64_t raw_bytes_max) {
  FrameHeader header = header_of(golden_space(), golden_space(), counted(0, 5), stored.size());
  header.codec = Codec::zstd;
  header.raw_bytes = raw_bytes;
  const Buffer frame = seal(header, stored);
  const auto opened = open_frame(frame);
  if (!opened) return std::unexpected(opened.error());
  return decompress_frame(*opened, raw_bytes_max);
}

// The golden frame's: 200 bytes of 42.
Buffer small_zstd() {
  const Buffer frame = golden("block_v1_zstd.frame");
  return {frame.begin() + header_bytes(64), frame.end()};
}

TEST(Decompress, TakesOneWholeFrameOfTheSizeThatIsAnnounced) {
  Buffer twice = small_zstd();
  twice.insert(twice.end(), twice.begin(), twice.begin() + 10);
  ASSERT_TRUE(decoded(small_zstd(), 200, 200));
  EXPECT_FALSE(decoded(small_zstd(), 199, 1000));
  EXPECT_FALSE(decoded(small_zstd(), 201, 1000));
  EXPECT_FALSE(decoded(twice, 400, 1000));
  EXPECT_FALSE(decoded(twice, 200, 1000));
  EXPECT_FALSE(decoded({}, 200, 1000));
  EXPECT_FALSE(decoded({}, 0, 1000));
  EXPECT_FALSE(decoded(Buffer(100, std::byte{0x5A}), 200, 1000));
  for (std::size_t length = 0; length < small_zstd().size(); ++length) {
    EXPECT_FALSE(decoded(Bytes(small_zstd()).first(length), 200, 1000)) << length;
  }
}

// A few stored bytes may announce gigabytes; neither what is announced nor what would come is taken beyond the limit.
TEST(Decompress, ABombIsBoundedByWhatTheReaderAllows) {
  const std::uint64_t announced = frame_bytes_max - header_bytes(5);
  EXPECT_EQ(decoded(small_zstd(), announced, 1000), std::unexpected(FrameFault::damaged));
  EXPECT_EQ(decoded(small_zstd(), announced, frame_bytes_max), std::unexpected(FrameFault::damaged));
  // One that is honest in both places.
  const Buffer zeros = seal(header_of(golden_space(), golden_space(), counted(0, 5), 1U << 24U), Buffer(1U << 24U));
  const Buffer bomb = compress_frame(zeros, 3);
  ASSERT_LT(bomb.size(), 10'000U);
  const auto opened = open_frame(bomb);
  ASSERT_TRUE(opened);
  EXPECT_FALSE(decompress_frame(*opened, (1U << 24U) - 1));
  EXPECT_EQ(decompress_frame(*opened, 1U << 24U), zeros);
}

TEST(BlockFormat, EveryFaultHasAName) {
  std::vector<std::string> names;
  for (const FrameFault fault : {FrameFault::truncated, FrameFault::foreign, FrameFault::newer, FrameFault::damaged}) {
    names.emplace_back(name_of(fault));
  }
  EXPECT_THAT(names, testing::ElementsAre("truncated", "foreign", "newer", "damaged"));
}

}  // namespace
}  // namespace caravan::kv
