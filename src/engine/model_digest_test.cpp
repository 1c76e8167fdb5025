#include "engine/model_digest.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <gtest/gtest.h>

#include "base/temp_directory.h"

namespace caravan::engine {
namespace {

namespace fs = std::filesystem;

class ModelDigest : public testing::Test {
 protected:
  ModelFile file(const std::vector<std::string>& names) const {
    ModelFile file;
    for (const std::string& name : names) {
      file.shards.push_back(folder_ / name);
      file.bytes += fs::file_size(file.shards.back());
    }
    return file;
  }
  // Longer than a tick of the file system's clock.
  static void settle() { std::this_thread::sleep_for(std::chrono::milliseconds(30)); }
  // Whether the content was read, and the digest.
  std::pair<bool, std::string> digest(const std::vector<std::string>& names) const {
    bool read = false;
    auto digest = model_digest(file(names), [&](float) { read = true; });
    EXPECT_TRUE(digest) << digest.error().message;
    return {read, digest.value_or("")};
  }

  TempDirectory folder_;
};

// printf '\3\0\0\0\0\0\0\0abc' | sha256sum
constexpr const char* digest_of_abc = "ce91dc5eec0139adf091900d225971d6ad246a845bad791b5693a9d0d55dd391";

TEST_F(ModelDigest, IsOverLengthAndContent) {
  folder_.write("a", "abc");
  EXPECT_EQ(digest({"a"}).second, digest_of_abc);
}

TEST_F(ModelDigest, IsReadOnceAndKept) {
  folder_.write("a", "abc");
  settle();
  const auto first = digest({"a"});
  EXPECT_TRUE(first.first);
  EXPECT_EQ(digest({"a"}), std::make_pair(false, first.second));
}

TEST_F(ModelDigest, FollowsTheContentEvenWhenSizeAndTimeAreAsBefore) {
  const fs::path path = folder_.write("a", "abc");
  const auto before = digest({"a"});
  const auto time = fs::last_write_time(path);
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary) << "abd";
  fs::last_write_time(path, time);
  const auto after = digest({"a"});
  EXPECT_TRUE(after.first);
  EXPECT_NE(after.second, before.second);
}

TEST_F(ModelDigest, IsReadAgainWhereTheFileMayHaveChangedInTheSameTick) {
  const fs::path path = folder_.write("a", "abc");
  const auto first = digest({"a"});
  fs::last_write_time(folder_ / "a.caravan-digest", fs::last_write_time(path));
  EXPECT_EQ(digest({"a"}), std::make_pair(true, first.second));
}

TEST_F(ModelDigest, AKeptDigestThatWasCutOrChangedDoesNotCount) {
  folder_.write("a", "abc");
  settle();
  const auto good = digest({"a"});
  const fs::path kept = folder_ / "a.caravan-digest";
  ASSERT_TRUE(fs::exists(kept));
  std::string text;
  {
    std::ifstream in(kept, std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(in), {});
  }
  for (std::size_t length = 0; length < text.size(); ++length) {
    folder_.write("a.caravan-digest", text.substr(0, length));
    EXPECT_EQ(digest({"a"}), std::make_pair(true, good.second)) << length;
  }
  for (std::size_t at = 0; at < text.size(); ++at) {
    std::string changed = text;
    changed[at] = changed[at] == '0' ? '1' : '0';
    folder_.write("a.caravan-digest", changed);
    EXPECT_EQ(digest({"a"}), std::make_pair(true, good.second)) << at;
  }
}

TEST_F(ModelDigest, ShardsCountInTheirOrderAndWithTheirBounds) {
  folder_.write("ab", "ab");
  folder_.write("c", "c");
  folder_.write("a", "a");
  folder_.write("bc", "bc");
  EXPECT_NE(digest({"ab", "c"}).second, digest({"a", "bc"}).second);
  EXPECT_NE(digest({"ab", "c"}).second, digest({"c", "ab"}).second);
}

TEST_F(ModelDigest, AFolderInTheKeptOnesPlaceOnlyCostsTheReading) {
  folder_.write("a", "abc");
  fs::create_directories(folder_ / "a.caravan-digest");
  EXPECT_EQ(digest({"a"}), std::make_pair(true, std::string(digest_of_abc)));
  EXPECT_EQ(digest({"a"}), std::make_pair(true, std::string(digest_of_abc)));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), {}), 2) << "no draft is left behind";
}

TEST_F(ModelDigest, AMissingShardIsAnError) {
  ModelFile none;
  none.shards = {folder_ / "none"};
  const auto digest = model_digest(none);
  ASSERT_FALSE(digest);
  EXPECT_EQ(digest.error().code, ErrorCode::io);
}

}  // namespace
}  // namespace caravan::engine
