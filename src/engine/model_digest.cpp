#include "engine/model_digest.h"

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <openssl/evp.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/check.h"
#include "base/log.h"

namespace caravan::engine {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t read_bytes = std::size_t{4} << 20U;
constexpr std::size_t kept_bytes_max = 64 << 10;  // of the file that keeps the digest

class File {
 public:
  explicit File(const fs::path& path) : descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~File() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  [[nodiscard]] int descriptor() const { return descriptor_; }

 private:
  int descriptor_;
};

class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    CHECK(context_ != nullptr && EVP_DigestInit_ex(context_.get(), EVP_sha256(), nullptr) == 1);
  }
  void add(const void* data, std::size_t bytes) { CHECK(EVP_DigestUpdate(context_.get(), data, bytes) == 1); }
  std::string hex() {
    std::array<unsigned char, 32> digest{};
    CHECK(EVP_DigestFinal_ex(context_.get(), digest.data(), nullptr) == 1);
    std::string text;
    for (const unsigned char byte : digest) text += fmt::format("{:02x}", byte);
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

std::string hex_of(std::string_view text) {
  Sha256 hash;
  hash.add(text.data(), text.size());
  return hash.hex();
}

bool later(const timespec& left, const timespec& right) {
  return std::pair(left.tv_sec, left.tv_nsec) > std::pair(right.tv_sec, right.tv_nsec);
}

// What tells that nobody has touched the shards.
struct Stamp {
  std::string text;
  timespec newest{};  // change of any of them

  friend bool operator==(const Stamp& left, const Stamp& right) { return left.text == right.text; }
};

std::optional<Stamp> stamp_of(const ModelFile& file) {
  Stamp stamp{.text = "caravan-digest 1\n"};
  for (const fs::path& shard : file.shards) {
    struct stat info{};
    if (::stat(shard.c_str(), &info) != 0) return std::nullopt;
    if (later(info.st_ctim, stamp.newest)) stamp.newest = info.st_ctim;
    stamp.text += fmt::format("{}:{} {} {}.{:09} {}.{:09}\n", info.st_dev, info.st_ino, info.st_size,
                              info.st_mtim.tv_sec, info.st_mtim.tv_nsec, info.st_ctim.tv_sec, info.st_ctim.tv_nsec);
  }
  return stamp;
}

// The stamp, the digest, and a digest over both: a file cut short or changed by hand does not count.
std::string kept_text(const Stamp& stamp, const std::string& digest) {
  const std::string text = stamp.text + digest + "\n";
  return text + hex_of(text) + "\n";
}

// A shard that changed in the same tick of the file system's clock in which its digest was written may have changed
// after it, and shows no later time: then what was kept does not count either.
std::optional<std::string> read_kept(const fs::path& path, const Stamp& stamp) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0 || !later(info.st_mtim, stamp.newest)) return std::nullopt;
  std::ifstream file(path, std::ios::binary);
  std::string text(kept_bytes_max, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  constexpr std::size_t digest_length = 64;
  if (!text.starts_with(stamp.text) || text.size() < stamp.text.size() + digest_length) return std::nullopt;
  std::string digest = text.substr(stamp.text.size(), digest_length);
  if (text != kept_text(stamp, digest)) return std::nullopt;
  return digest;
}

// Written beside and renamed, so that whoever reads sees all of it or none.
bool write_kept(const fs::path& path, const std::string& text) {
  const fs::path draft = path.string() + fmt::format(".{}", ::getpid());
  std::error_code problem;
  {
    std::ofstream file(draft, std::ios::binary | std::ios::trunc);
    file << text;
    file.close();
    if (!file) {
      fs::remove(draft, problem);
      return false;
    }
  }
  fs::rename(draft, path, problem);
  if (!problem) return true;
  fs::remove(draft, problem);
  return false;
}

Result<std::string> read_content(const ModelFile& file, const std::function<void(float)>& progress) {
  Sha256 hash;
  std::vector<char> buffer(read_bytes);
  std::uint64_t done = 0;
  for (const fs::path& shard : file.shards) {
    const File open(shard);
    struct stat info{};
    if (open.descriptor() < 0 || ::fstat(open.descriptor(), &info) != 0) {
      return fail(ErrorCode::io, "{}: {}", shard.string(), std::system_category().message(errno));
    }
    std::array<unsigned char, 8> length{};
    for (std::size_t i = 0; i < length.size(); ++i) {
      length[i] = static_cast<unsigned char>(static_cast<std::uint64_t>(info.st_size) >> (8 * i));
    }
    hash.add(length.data(), length.size());
    while (true) {
      const ::ssize_t count = ::read(open.descriptor(), buffer.data(), buffer.size());
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return fail(ErrorCode::io, "{}: {}", shard.string(), std::system_category().message(errno));
      if (count == 0) break;
      hash.add(buffer.data(), static_cast<std::size_t>(count));
      done += static_cast<std::uint64_t>(count);
      if (progress && file.bytes > 0) progress(static_cast<float>(done) / static_cast<float>(file.bytes));
    }
  }
  return hash.hex();
}

}  // namespace

Result<std::string> model_digest(const ModelFile& file, const std::function<void(float)>& progress) {
  const fs::path kept = file.path().string() + ".caravan-digest";
  const auto stamp = stamp_of(file);
  if (stamp) {
    if (auto digest = read_kept(kept, *stamp)) return std::move(*digest);
  }
  auto digest = read_content(file, progress);
  if (!digest) return digest;
  // Written to meanwhile: good for this process, which has the file mapped as it is, but not to be kept.
  if (!stamp || stamp_of(file) != stamp) return digest;
  if (!write_kept(kept, kept_text(*stamp, *digest))) {
    log::info("{} cannot be written, so the model's digest is computed at each start", kept.string());
  }
  return digest;
}

}  // namespace caravan::engine
