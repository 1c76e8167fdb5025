#include "kv/block.h"

#include <algorithm>
#include <memory>

#include <openssl/evp.h>

#include "base/check.h"

namespace caravan::kv {
namespace {

// SHA-256 over fields, each with its length in front, so that no two lists of fields give the same bytes.
class FieldHash {
 public:
  explicit FieldHash(std::string_view domain) : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    CHECK(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
    text(domain);
  }
  void text(std::string_view value) { field(value.data(), value.size()); }
  void id(const BlockId& value) { field(value.bytes.data(), value.bytes.size()); }
  void number(std::uint32_t value) {
    const auto bytes = little_endian(value);
    field(bytes.data(), bytes.size());
  }
  void tokens(std::span<const Token> values) {
    length(values.size() * sizeof(Token));
    for (const Token token : values) {
      const auto bytes = little_endian(static_cast<std::uint32_t>(token));
      add(bytes.data(), bytes.size());
    }
  }
  BlockId finish() {
    BlockId id;
    CHECK(EVP_DigestFinal_ex(context_.get(), id.bytes.data(), nullptr) == 1);
    return id;
  }

 private:
  static std::array<std::uint8_t, 4> little_endian(std::uint32_t value) {
    return {static_cast<std::uint8_t>(value), static_cast<std::uint8_t>(value >> 8U),
            static_cast<std::uint8_t>(value >> 16U), static_cast<std::uint8_t>(value >> 24U)};
  }
  void length(std::size_t bytes) {
    const auto low = little_endian(static_cast<std::uint32_t>(bytes));
    const auto high = little_endian(static_cast<std::uint32_t>(std::uint64_t{bytes} >> 32U));
    add(low.data(), low.size());
    add(high.data(), high.size());
  }
  void field(const void* data, std::size_t bytes) {
    length(bytes);
    add(data, bytes);
  }
  void add(const void* data, std::size_t bytes) { CHECK(EVP_DigestUpdate(context_.get(), data, bytes) == 1); }

  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

constexpr std::string_view hex_digits = "0123456789abcdef";

}  // namespace

std::string BlockId::hex() const {
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text += hex_digits[byte >> 4U];
    text += hex_digits[byte & 15U];
  }
  return text;
}

Result<BlockId> BlockId::from_hex(std::string_view text) {
  BlockId id;
  const bool valid =
      text.size() == 2 * id.bytes.size() && std::ranges::all_of(text, [](char c) { return hex_digits.contains(c); });
  if (!valid) return fail(ErrorCode::invalid_argument, "a block id is 64 hexadecimal digits, not \"{}\"", text);
  for (std::size_t i = 0; i < id.bytes.size(); ++i) {
    id.bytes[i] = static_cast<std::uint8_t>(hex_digits.find(text[2 * i]) << 4U | hex_digits.find(text[2 * i + 1]));
  }
  return id;
}

BlockId Namespace::id() const {
  FieldHash hash("caravan.namespace.1");
  hash.text(model);
  hash.number(static_cast<std::uint32_t>(adapters.size()));
  for (const std::string& adapter : adapters) hash.text(adapter);
  hash.text(type_k);
  hash.text(type_v);
  hash.text(rope);
  hash.number(flash_attention ? 1 : 0);
  hash.number(v_transposed ? 1 : 0);
  hash.number(block_tokens);
  hash.number(state_version);
  hash.text(tenant);
  return hash.finish();
}

BlockId block_id(const BlockId& parent, std::span<const Token> tokens) {
  FieldHash hash("caravan.block.1");
  hash.id(parent);
  hash.tokens(tokens);
  return hash.finish();
}

std::vector<BlockId> chain(const BlockId& namespace_id, std::span<const Token> tokens, std::uint32_t block_tokens) {
  CHECK(block_tokens > 0);
  std::vector<BlockId> ids;
  ids.reserve(tokens.size() / block_tokens);
  const BlockId* parent = &namespace_id;
  for (std::size_t begin = 0; begin + block_tokens <= tokens.size(); begin += block_tokens) {
    ids.push_back(block_id(*parent, tokens.subspan(begin, block_tokens)));
    parent = &ids.back();
  }
  return ids;
}

BlockId state_id(const BlockId& block) {
  FieldHash hash("caravan.state.1");
  hash.id(block);
  return hash.finish();
}

}  // namespace caravan::kv
