// How much memory this process may still take: on each device as ggml sees it, and in host memory as the machine, its
// control groups (v1 and v2, all levels) and the limit on the address space (ulimit -v) allow. Read before the weights
// are loaded. Thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace caravan::engine {

struct DeviceBudget {
  std::string name;  // ggml's: "CUDA0", "CPU"
  std::string description;
  std::uint64_t total_bytes = 0;
  std::uint64_t free_bytes = 0;
};

struct MemoryBudget {
  std::vector<DeviceBudget> accelerators;  // those that libllama puts layers on; none on a CPU-only machine
  DeviceBudget host;                       // free_bytes: the least of what all limits leave
  std::string host_limit;                  // what sets it: "free memory", "the container's limit of 2G", ...
  bool host_shared = true;                 // no limit of our own: other programs live in the same memory
  // Only under a limit on the address space: room left in it. There a mapped file counts in full, used or not.
  std::optional<std::uint64_t> address_space_bytes;
};

// Loads ggml's backends.
MemoryBudget read_memory_budget();

// The host's part. `root` stands for "/" in tests. `process_bytes` and `limit_bytes` are the address space in use and
// its limit, if it has one.
struct AddressSpace {
  std::uint64_t used_bytes = 0;
  std::uint64_t limit_bytes = 0;
};
void read_host_memory(MemoryBudget& budget, const std::filesystem::path& root,
                      std::optional<AddressSpace> address_space);

}  // namespace caravan::engine
