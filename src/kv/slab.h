// Memory cut into slots of one size, in mapped regions that come and go as wholes.
//
// A slot's number stays the same while it lives: region = number / slots_per_region(). A region that went leaves its
// numbers to the next that comes. Not thread-safe; Region::map may run on any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace caravan::kv {

// Anonymous memory, mapped as long as this lives.
class Region {
 public:
  // None: the system has no memory. With Touch::all every page is there when this returns (0.3 to 3 GB/s).
  enum class Touch : std::uint8_t { none, all };
  static std::optional<Region> map(std::size_t bytes, Touch touch);

  Region(Region&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  Region& operator=(Region&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ~Region();

  [[nodiscard]] std::span<std::byte> bytes() const { return bytes_; }

 private:
  explicit Region(std::span<std::byte> bytes) : bytes_(bytes) {}
  std::span<std::byte> bytes_;
};

class Slab {
 public:
  using Number = std::uint32_t;

  // Regions hold as many slots as fit `region_bytes`, at least one.
  Slab(std::uint64_t slot_bytes, std::uint64_t region_bytes);

  [[nodiscard]] std::uint64_t slot_bytes() const { return slot_bytes_; }
  [[nodiscard]] std::uint32_t slots_per_region() const { return slots_per_region_; }
  [[nodiscard]] std::size_t region_bytes() const { return region_bytes_; }
  // One past the highest number; some below may belong to regions that went.
  [[nodiscard]] Number end() const { return static_cast<Number>(regions_.size()) * slots_per_region_; }
  [[nodiscard]] std::size_t regions() const { return regions_mapped_; }
  [[nodiscard]] std::size_t free() const { return free_.size(); }
  [[nodiscard]] bool has_region(std::size_t region) const { return regions_[region].has_value(); }

  // `region` as mapped by Region::map(region_bytes(), ...); its number.
  std::size_t add(Region region);
  // All slots of it must be free.
  void remove(std::size_t region);

  std::optional<Number> take();
  void give(Number slot) { free_.push_back(slot); }
  [[nodiscard]] std::span<std::byte> bytes(Number slot) const;

 private:
  const std::uint64_t slot_bytes_;
  const std::uint32_t slots_per_region_;
  const std::size_t region_bytes_;
  std::vector<std::optional<Region>> regions_;
  std::size_t regions_mapped_ = 0;
  std::vector<Number> free_;
};

}  // namespace caravan::kv
