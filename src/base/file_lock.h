// A lock on a file (flock), between processes and between all who open it in one. Gone with its holder, however that
// ends.
#pragma once

#include <cerrno>
#include <filesystem>
#include <optional>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace caravan {

class FileLock {
 public:
  enum class Mode { shared, exclusive };

  // Waits; nothing if the file cannot be opened or made.
  static std::optional<FileLock> take(const std::filesystem::path& file, Mode mode) { return take(file, mode, 0); }
  // Nothing if others hold it, too.
  static std::optional<FileLock> try_take(const std::filesystem::path& file, Mode mode) {
    return take(file, mode, LOCK_NB);
  }
  FileLock(FileLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileLock& operator=(FileLock&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~FileLock() {
    if (descriptor_ >= 0) close(descriptor_);
  }

  // Whether a shared lock is the only one at the moment.
  [[nodiscard]] bool is_alone() const {
    const bool alone = flock(descriptor_, LOCK_EX | LOCK_NB) == 0;
    flock(descriptor_, LOCK_SH);
    return alone;
  }

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}
  static std::optional<FileLock> take(const std::filesystem::path& file, Mode mode, int flags) {
    const int descriptor = open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (descriptor < 0) return std::nullopt;
    FileLock lock(descriptor);
    int taken = 0;
    do {
      taken = flock(descriptor, (mode == Mode::shared ? LOCK_SH : LOCK_EX) | flags);
    } while (taken != 0 && errno == EINTR);
    if (taken != 0) return std::nullopt;
    return lock;
  }

  int descriptor_;
};

}  // namespace caravan
