// Blocks and their names.
//
// A block is the KV of `block_tokens` consecutive tokens, immutable once sealed. Its id is a SHA-256 over everything
// that shaped it: a domain tag, the id of the block before it, and its tokens, every field with its length in front.
// The first block's parent is the namespace id, which covers the model, the KV types and so on; so two ids are equal
// only where the bytes are. docs/block_format.md has the byte table, block_test.cpp the golden vectors.
//
// Pure; thread-safe.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace caravan::kv {

using Token = std::int32_t;

struct BlockId {
  std::array<std::uint8_t, 32> bytes{};

  friend auto operator<=>(const BlockId&, const BlockId&) = default;
  [[nodiscard]] std::string hex() const;
  // Errors: invalid_argument unless `text` is 64 hexadecimal digits.
  static Result<BlockId> from_hex(std::string_view text);
};

// Ids are uniform, so any part of one is a hash.
struct BlockIdHash {
  using is_avalanching = void;
  std::size_t operator()(const BlockId& id) const {
    std::size_t value = 0;
    std::memcpy(&value, id.bytes.data(), sizeof(value));
    return value;
  }
};

// Everything that changes KV bytes. What does not (seed, sequence numbers, threads, unified or streams) is not here.
struct Namespace {
  std::string model;                  // digest of the model's content, shards in order, hexadecimal
  std::vector<std::string> adapters;  // "digest:scale", in the order of their application
  std::string type_k;                 // ggml names
  std::string type_v;
  std::string rope;  // overrides of the model's own: "" none, else the settings as text
  bool flash_attention = true;
  bool v_transposed = false;
  std::uint32_t block_tokens = 64;
  std::uint32_t state_version = 1;  // of the payload (engine/snapshot.h)
  std::string tenant;               // empty where tenants share

  [[nodiscard]] BlockId id() const;
};

// The id of the block that holds `tokens` behind `parent`.
BlockId block_id(const BlockId& parent, std::span<const Token> tokens);

// The ids of all whole blocks of `tokens`, in order; tokens.size() / block_tokens of them.
std::vector<BlockId> chain(const BlockId& namespace_id, std::span<const Token> tokens, std::uint32_t block_tokens);

// The name of the whole-state checkpoint at the end of a block, for models that cannot be cut there (recurrent,
// hybrid).
BlockId state_id(const BlockId& block);

}  // namespace caravan::kv

template <>
struct std::hash<caravan::kv::BlockId> : caravan::kv::BlockIdHash {};
