#include "engine/memory_budget.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/temp_directory.h"

namespace caravan::engine {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr std::uint64_t gibi = std::uint64_t{1} << 30;

class HostMemory : public testing::Test {
 protected:
  void SetUp() override {
    put("proc/meminfo", "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:   12582912 kB\n");
  }
  void put(const std::string& name, const std::string& text) { root_.write(name, text); }
  MemoryBudget read(std::optional<AddressSpace> address_space = std::nullopt) {
    MemoryBudget budget;
    read_host_memory(budget, root_.path(), address_space);
    return budget;
  }

  TempDirectory root_;
};

TEST_F(HostMemory, IsWhatTheMachineHasAvailableWithoutLimits) {
  const MemoryBudget budget = read();
  EXPECT_EQ(budget.host.total_bytes, 16 * gibi);
  EXPECT_EQ(budget.host.free_bytes, 12 * gibi);
  EXPECT_EQ(budget.host_limit, "free memory");
  EXPECT_TRUE(budget.host_shared);
}

TEST_F(HostMemory, ObeysAVersion2GroupAndCountsReclaimableFilesAsFree) {
  put("proc/self/cgroup", "0::/\n");
  put("sys/fs/cgroup/memory.max", "2147483648\n");
  put("sys/fs/cgroup/memory.current", "1073741824\n");
  put("sys/fs/cgroup/memory.stat", "anon 536870912\ninactive_file 536870912\n");
  const MemoryBudget budget = read();
  EXPECT_EQ(budget.host.total_bytes, 2 * gibi);
  EXPECT_EQ(budget.host.free_bytes, 2 * gibi - gibi / 2);
  EXPECT_EQ(budget.host_limit, "the container's limit of 2.0 GiB");
  EXPECT_FALSE(budget.host_shared);
}

TEST_F(HostMemory, ObeysTheTightestGroupAbove) {
  put("proc/self/cgroup", "0::/shop/caravan\n");
  put("sys/fs/cgroup/shop/caravan/memory.max", "max\n");
  put("sys/fs/cgroup/shop/memory.max", "4294967296\n");
  put("sys/fs/cgroup/shop/memory.current", "3221225472\n");
  EXPECT_EQ(read().host.free_bytes, gibi);
  put("sys/fs/cgroup/shop/caravan/memory.max", "536870912\n");
  put("sys/fs/cgroup/shop/caravan/memory.current", "0\n");
  EXPECT_EQ(read().host.free_bytes, gibi / 2);
}

TEST_F(HostMemory, ObeysAVersion1Group) {
  put("proc/self/cgroup", "12:cpu,cpuacct:/x\n7:memory:/docker/abc\n0::/\n");
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n");  // in a container, the mount is the group
  put("sys/fs/cgroup/memory/memory.usage_in_bytes", "0\n");
  EXPECT_EQ(read().host.free_bytes, gibi);
  put("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");  // none
  EXPECT_EQ(read().host.free_bytes, 12 * gibi);
  EXPECT_TRUE(read().host_shared);
}

TEST_F(HostMemory, ObeysALimitOnTheAddressSpace) {
  const MemoryBudget budget = read(AddressSpace{.used_bytes = gibi / 4, .limit_bytes = gibi});
  EXPECT_EQ(budget.address_space_bytes, gibi - gibi / 4);
  EXPECT_EQ(budget.host.free_bytes, gibi - gibi / 4);
  EXPECT_THAT(budget.host_limit, HasSubstr("ulimit -v"));
  EXPECT_EQ(read(AddressSpace{.used_bytes = 2 * gibi, .limit_bytes = gibi}).address_space_bytes, 0U);
}

TEST(MemoryBudget, OfThisMachineHasAHostWithMemory) {
  const MemoryBudget budget = read_memory_budget();
  EXPECT_FALSE(budget.host.name.empty());
  EXPECT_GT(budget.host.free_bytes, 0U);
  EXPECT_LE(budget.host.free_bytes, budget.host.total_bytes);
}

}  // namespace
}  // namespace caravan::engine
