#include "engine/memory_budget.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <string_view>

#include <ggml-backend.h>
#include <sys/resource.h>
#include <unistd.h>

#include "engine/bytes_text.h"
#include "engine/model.h"

namespace caravan::engine {
namespace {

namespace fs = std::filesystem;

// cgroup v1 says "no limit" by a number close to 2^63.
constexpr std::uint64_t unlimited_bytes = std::uint64_t{1} << 60;

std::optional<std::uint64_t> read_number(const fs::path& path) {
  std::ifstream file(path);
  std::string word;
  std::uint64_t value = 0;
  if (!(file >> word)) return std::nullopt;
  const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (problem != std::errc() || end != word.data() + word.size()) return std::nullopt;  // "max"
  return value;
}

// A line "name value" or "name: value kB".
std::optional<std::uint64_t> read_field(const fs::path& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string word;
    std::string unit;
    std::uint64_t value = 0;
    if (!(words >> word >> value)) continue;
    if (word != name) continue;
    words >> unit;
    return unit == "kB" ? value * 1024 : value;
  }
  return std::nullopt;
}

struct GroupFiles {
  const char* limit;
  const char* usage;
  const char* reclaimable;  // in memory.stat
};

// This process's memory groups, from its own to the root; in a container the files lie at the mount itself.
void apply_groups(MemoryBudget& budget, const fs::path& mount, const std::string& group, const GroupFiles& files) {
  for (fs::path at = group;; at = at.parent_path()) {
    const fs::path folder = mount / at.relative_path();
    const auto limit = read_number(folder / files.limit);
    if (limit && *limit < unlimited_bytes) {
      const std::uint64_t used = read_number(folder / files.usage).value_or(0);
      const std::uint64_t kept =
          used - std::min(used, read_field(folder / "memory.stat", files.reclaimable).value_or(0));
      const std::uint64_t left = *limit - std::min(*limit, kept);
      budget.host.total_bytes = std::min(budget.host.total_bytes, *limit);
      budget.host_shared = false;
      if (left < budget.host.free_bytes) {
        budget.host.free_bytes = left;
        budget.host_limit = "the container's limit of " + bytes_text(*limit);
      }
    }
    if (!at.has_relative_path()) return;
  }
}

void apply_control_groups(MemoryBudget& budget, const fs::path& root) {
  std::ifstream file(root / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {  // "0::/path" (v2) or "7:memory:/path" (v1)
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string group = line.substr(second + 1);
    if (controllers == ",,") {
      apply_groups(budget, root / "sys/fs/cgroup", group, {"memory.max", "memory.current", "inactive_file"});
    } else if (controllers.find(",memory,") != std::string::npos) {
      apply_groups(budget, root / "sys/fs/cgroup/memory", group,
                   {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"});
    }
  }
}

std::optional<AddressSpace> read_address_space() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return std::nullopt;
  const std::uint64_t pages = read_number("/proc/self/statm").value_or(0);
  return AddressSpace{.used_bytes = pages * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)),
                      .limit_bytes = limit.rlim_cur};
}

}  // namespace

void read_host_memory(MemoryBudget& budget, const fs::path& root, std::optional<AddressSpace> address_space) {
  const fs::path meminfo = root / "proc/meminfo";
  budget.host.total_bytes = read_field(meminfo, "MemTotal:").value_or(budget.host.total_bytes);
  budget.host.free_bytes = read_field(meminfo, "MemAvailable:").value_or(budget.host.free_bytes);
  budget.host_limit = "free memory";
  apply_control_groups(budget, root);
  if (address_space) {
    budget.address_space_bytes =
        address_space->limit_bytes - std::min(address_space->limit_bytes, address_space->used_bytes);
    budget.host.total_bytes = std::min(budget.host.total_bytes, address_space->limit_bytes);
    budget.host_shared = false;
    if (*budget.address_space_bytes < budget.host.free_bytes) {
      budget.host.free_bytes = *budget.address_space_bytes;
      budget.host_limit = "the address space limit of " + bytes_text(address_space->limit_bytes) + " (ulimit -v)";
    }
  }
}

MemoryBudget read_memory_budget() {
  load_backends();
  MemoryBudget budget;
  std::vector<DeviceBudget> integrated;
  for (std::size_t i = 0; i < ggml_backend_dev_count(); ++i) {
    ggml_backend_dev_t device = ggml_backend_dev_get(i);
    DeviceBudget each{.name = ggml_backend_dev_name(device), .description = ggml_backend_dev_description(device)};
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    ggml_backend_dev_memory(device, &free_bytes, &total_bytes);
    each.free_bytes = free_bytes;
    each.total_bytes = total_bytes;
    switch (ggml_backend_dev_type(device)) {
      case GGML_BACKEND_DEVICE_TYPE_CPU:
        budget.host = each;
        break;
      case GGML_BACKEND_DEVICE_TYPE_GPU:
        budget.accelerators.push_back(each);
        break;
      case GGML_BACKEND_DEVICE_TYPE_IGPU:
        integrated.push_back(each);
        break;
      default:
        break;
    }
  }
  // As libllama does: a graphics unit in the processor only where there is no other.
  if (budget.accelerators.empty() && !integrated.empty()) budget.accelerators.push_back(integrated.front());
  read_host_memory(budget, "/", read_address_space());
  return budget;
}

}  // namespace caravan::engine
