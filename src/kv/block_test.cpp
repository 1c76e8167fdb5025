#include "kv/block.h"

#include <numeric>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace caravan::kv {
namespace {

Namespace plain() {
  Namespace space;
  space.model = std::string(64, 'a');
  space.type_k = "f16";
  space.type_v = "f16";
  return space;
}

std::vector<Token> counted(std::size_t length) {
  std::vector<Token> tokens(length);
  std::iota(tokens.begin(), tokens.end(), 0);
  return tokens;
}

// Golden: nodes of other builds and machines must find each other's blocks. A change here is a new domain tag.
// tests/testdata/block_v1.py derives the same ids from the description alone.
TEST(Block, IdsAreTheSameInEveryBuild) {
  const auto ids = chain(plain().id(), counted(200), 64);
  ASSERT_EQ(ids.size(), 3U);
  EXPECT_EQ(plain().id().hex(), "9e48ddccbc7a4f7c98d207e200e579c69a020ee81e2110b7ebfb94a20c0b27ca");
  EXPECT_EQ(ids[0].hex(), "02822d0b33befeaedf4210dd6f0d6c6a29233c8304136258232ebbf06a6f7a06");
  EXPECT_EQ(ids[1].hex(), "4382748b7f67f88300d20b8c63c6c30b52daf417f044298c951dd7613d7cc63e");
  EXPECT_EQ(ids[2].hex(), "3dbcdff965182b67769421dc5597b97d3791268b7e4d7834e5cd18f4f280d0de");
  EXPECT_EQ(state_id(ids[2]).hex(), "5eade35bcd3959c1be42e55d595c36170e57eeb3eae05142396be736392eb483");
}

TEST(Block, IdsOfANamespaceWithEverythingSetAreTheSameInEveryBuild) {
  const BlockId space = Namespace{.model = std::string(64, 'b'),
                                  .adapters = {"x:1", "y:0.5"},
                                  .type_k = "q8_0",
                                  .type_v = "q4_0",
                                  .rope = "base=10000",
                                  .flash_attention = false,
                                  .v_transposed = true,
                                  .block_tokens = 32,
                                  .state_version = 3,
                                  .tenant = "acme"}
                            .id();
  const Token tokens[] = {-1, 0, INT32_MAX};
  EXPECT_EQ(space.hex(), "f61376f20a6514346ced5eb167e60da3216add306d11a59b446b231c8ba22253");
  EXPECT_EQ(block_id(space, tokens).hex(), "5b68e1b0e2ce2b083edcaaf92591900fa01c59c4dc6c408cb39de52799f78c99");
}

TEST(Block, AChainNamesItsWholeBeginning) {
  const auto tokens = counted(256);
  const auto ids = chain(plain().id(), tokens, 64);
  auto changed = tokens;
  changed[70] = 7;
  const auto others = chain(plain().id(), changed, 64);
  EXPECT_EQ(ids[0], others[0]);
  for (std::size_t i = 1; i < ids.size(); ++i) EXPECT_NE(ids[i], others[i]) << i;
  EXPECT_EQ(ids[1], block_id(ids[0], std::span(tokens).subspan(64, 64)));
  EXPECT_NE(state_id(ids[1]), ids[1]);
}

TEST(Block, PartsOfBlocksHaveNoId) {
  EXPECT_TRUE(chain(plain().id(), counted(63), 64).empty());
  EXPECT_EQ(chain(plain().id(), counted(64), 64).size(), 1U);
  EXPECT_EQ(chain(plain().id(), counted(127), 64).size(), 1U);
}

// Case 12: whatever shapes the bytes changes every id.
TEST(Namespace, AnyPartChangesTheId) {
  std::set<std::string> ids{plain().id().hex()};
  const auto with = [&](auto change) {
    Namespace space = plain();
    change(space);
    EXPECT_TRUE(ids.insert(space.id().hex()).second);
  };
  with([](Namespace& n) { n.model[63] = 'b'; });
  with([](Namespace& n) { n.adapters = {"x:1"}; });
  with([](Namespace& n) { n.adapters = {"x:0.5"}; });
  with([](Namespace& n) { n.adapters = {"x:1", "y:1"}; });
  with([](Namespace& n) { n.adapters = {"y:1", "x:1"}; });
  with([](Namespace& n) { n.type_k = "q8_0"; });
  with([](Namespace& n) { n.type_v = "q8_0"; });
  with([](Namespace& n) { n.rope = "base=10000"; });
  with([](Namespace& n) { n.flash_attention = false; });
  with([](Namespace& n) { n.v_transposed = true; });
  with([](Namespace& n) { n.block_tokens = 32; });
  with([](Namespace& n) { n.state_version = 2; });
  with([](Namespace& n) { n.tenant = "acme"; });
  with([](Namespace& n) {  // a text may not slide from one field into the next
    n.type_k = "f16f";
    n.type_v = "16";
  });
}

TEST(BlockId, IsReadBackFromItsText) {
  const BlockId id = plain().id();
  EXPECT_EQ(BlockId::from_hex(id.hex()), id);
  for (const char* bad : {"", "12", "zz"}) EXPECT_FALSE(BlockId::from_hex(bad)) << bad;
  EXPECT_FALSE(BlockId::from_hex(id.hex() + "0"));
  EXPECT_FALSE(BlockId::from_hex(std::string(64, 'A')));
}

}  // namespace
}  // namespace caravan::kv
