#include "kv/slab.h"

#include <algorithm>

#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"

namespace caravan::kv {
namespace {

std::size_t whole_pages(std::uint64_t bytes) {
  const auto page = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
  return (bytes + page - 1) / page * page;
}

}  // namespace

std::optional<Region> Region::map(std::size_t bytes, Touch touch) {
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return std::nullopt;
  // Large pages fault and translate faster; where there are none, small ones do.
  madvise(memory, bytes, MADV_HUGEPAGE);
  if (touch == Touch::all && madvise(memory, bytes, MADV_POPULATE_WRITE) != 0) {
    // A kernel without it: a byte a page.
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    for (std::size_t at = 0; at < bytes; at += page) static_cast<volatile std::byte*>(memory)[at] = std::byte{0};
  }
  return Region(std::span(static_cast<std::byte*>(memory), bytes));
}

Region::~Region() {
  if (!bytes_.empty()) munmap(bytes_.data(), bytes_.size());
}

Slab::Slab(std::uint64_t slot_bytes, std::uint64_t region_bytes)
    : slot_bytes_(slot_bytes),
      slots_per_region_(static_cast<std::uint32_t>(std::max<std::uint64_t>(region_bytes / slot_bytes, 1))),
      region_bytes_(whole_pages(slot_bytes * slots_per_region_)) {}

std::size_t Slab::add(Region region) {
  CHECK(region.bytes().size() == region_bytes_);
  const auto gap = std::ranges::find_if(regions_, [](const auto& each) { return !each.has_value(); });
  const auto number = static_cast<std::size_t>(gap - regions_.begin());
  if (gap == regions_.end()) {
    regions_.emplace_back(std::move(region));
  } else {
    *gap = std::move(region);
  }
  ++regions_mapped_;
  free_.reserve(free_.size() + slots_per_region_);
  // The first slot is taken first.
  for (std::uint32_t i = slots_per_region_; i > 0; --i) {
    free_.push_back(static_cast<Number>(number) * slots_per_region_ + i - 1);
  }
  return number;
}

void Slab::remove(std::size_t region) {
  CHECK(has_region(region));
  const auto gone = std::erase_if(free_, [&](Number slot) { return slot / slots_per_region_ == region; });
  CHECK(gone == slots_per_region_);
  regions_[region].reset();
  --regions_mapped_;
}

std::optional<Slab::Number> Slab::take() {
  if (free_.empty()) return std::nullopt;
  const Number slot = free_.back();
  free_.pop_back();
  return slot;
}

std::span<std::byte> Slab::bytes(Number slot) const {
  const Region& region = *regions_[slot / slots_per_region_];
  return region.bytes().subspan(slot % slots_per_region_ * slot_bytes_, slot_bytes_);
}

}  // namespace caravan::kv
