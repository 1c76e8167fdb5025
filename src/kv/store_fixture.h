// A store in a folder of the test's own, and sessions to put into it. For tests.
#pragma once

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/clock.h"
#include "base/temp_directory.h"
#include "kv/block_format.h"
#include "kv/store_folder.h"
#include "kv/store_tier.h"

namespace caravan::kv {

inline constexpr std::uint64_t mebi = std::uint64_t{1} << 20U;

class StoreFixture : public ::testing::Test {
 protected:
  static constexpr std::uint32_t block_tokens = 16;

  void open(std::uint64_t bytes_max) {
    auto opened = StoreTier::open(
        {.directory = directory_.path(), .bytes_max = bytes_max, .now = [this] { return now_.load(); }});
    ASSERT_TRUE(opened) << opened.error().message;
    tier_ = std::move(*opened);
  }
  void reopen(std::uint64_t bytes_max) {
    tier_.reset();
    open(bytes_max);
  }

  // The chain of a session of so many blocks.
  std::vector<BlockId> chain_of(std::int32_t session, std::size_t blocks) const {
    return chain(space_, std::vector<Token>(blocks * block_tokens, session), block_tokens);
  }
  BlockId id_of(std::int32_t session, std::size_t block) const { return chain_of(session, block + 1).back(); }
  // A sealed frame of so many payload bytes, filled by its session.
  std::vector<std::byte> frame_of(std::int32_t session, std::size_t block, std::uint64_t payload) const {
    const std::vector<BlockId> ids = chain_of(session, block + 1);
    std::vector<std::byte> frame(frame_bytes(block_tokens, payload));
    std::fill(frame.begin() + header_bytes(block_tokens), frame.end(), std::byte(session * 31 + block));
    seal_frame(frame, {.raw_bytes = payload,
                       .stored_bytes = payload,
                       .namespace_id = space_,
                       .parent = block == 0 ? space_ : ids[block - 1],
                       .id = ids[block],
                       .tokens = std::vector<Token>(block_tokens, session)});
    return frame;
  }
  bool put(std::int32_t session, std::size_t block, std::uint64_t payload) {
    return tier_->put(id_of(session, block), frame_of(session, block, payload));
  }
  std::size_t put_session(std::int32_t session, std::size_t blocks, std::uint64_t payload) {
    std::size_t kept = 0;
    for (std::size_t block = 0; block < blocks; ++block) kept += put(session, block, payload) ? 1U : 0U;
    return kept;
  }
  std::size_t match(std::int32_t session, std::size_t blocks) { return tier_->match(chain_of(session, blocks)); }
  Lease get(std::int32_t session, std::size_t block = 0) { return tier_->get(space_, id_of(session, block)); }

  std::vector<StoreTier::Block> list() {
    std::vector<StoreTier::Block> blocks;
    tier_->for_each([&](const StoreTier::Block& block) {
      blocks.push_back(block);
      return true;
    });
    return blocks;
  }

  std::filesystem::path data_file() const { return directory_ / "v1/1/data.mdb"; }
  // The names of the folders that were set aside.
  std::vector<std::string> set_aside() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.path())) {
      std::string name = entry.path().filename().string();
      if (name.starts_with("v1.")) names.push_back(std::move(name));
    }
    std::ranges::sort(names);
    return names;
  }
  std::uint64_t bytes_on_disk() const {
    std::uint64_t bytes = 0;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory_.path())) {
      if (entry.is_regular_file()) bytes += entry.file_size();
    }
    return bytes;
  }

  const TempDirectory directory_;
  const BlockId space_ = Namespace{.model = "m", .type_k = "f16", .type_v = "f16"}.id();
  std::atomic<TimePoint> now_ = Clock::now();
  std::unique_ptr<StoreTier> tier_;
};

}  // namespace caravan::kv
