// What a store lives through: files cut, changed and replaced, processes killed in the middle of a write, a full disk.
#include <chrono>
#include <csignal>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kv/block_format.h"
#include "kv/store_fixture.h"
#include "kv/store_ledger.h"
#include "kv/store_tier.h"

namespace caravan::kv {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t payload_bytes = 20'000;
constexpr std::int32_t sessions = 30;

class StoreDamage : public StoreFixture {
 protected:
  void fill() {
    open(16 * mebi);
    for (std::int32_t session = 0; session < sessions; ++session) put(session, 0, payload_bytes);
    tier_.reset();
  }
  // Whatever is found is right; and the store takes blocks.
  void expect_sound() {
    for (std::int32_t session = 0; session < sessions; ++session) {
      if (const Lease lease = get(session)) {
        EXPECT_TRUE(std::ranges::equal(lease.frame(), frame_of(session, 0, payload_bytes)));
      }
    }
    EXPECT_TRUE(put(1000, 0, payload_bytes));
    EXPECT_TRUE(get(1000));
  }
  void start_over() {
    tier_.reset();
    for (const auto& entry : fs::directory_iterator(directory_.path())) fs::remove_all(entry);
  }
  // In a process of its own; how it ended.
  template <class Body>
  static int in_child(const Body& body) {
    const pid_t child = fork();
    if (child == 0) _exit(body() ? 0 : 1);
    int status = 0;
    waitpid(child, &status, 0);
    return status;
  }
};

TEST_F(StoreDamage, AFileCutShortIsSetAside) {
  fill();
  const auto whole = fs::file_size(data_file());
  start_over();
  for (const std::uint64_t size : {std::uint64_t{1}, std::uint64_t{4095}, std::uint64_t{4096}, std::uint64_t{8192},
                                   whole / 2, whole - 4096, whole - 1}) {
    SCOPED_TRACE(size);
    fill();
    fs::resize_file(data_file(), size);
    open(16 * mebi);
    EXPECT_EQ(set_aside().size(), 1U);
    EXPECT_FALSE(get(0));
    expect_sound();
    start_over();
  }
}

TEST_F(StoreDamage, AFlippedBitIsAMissOrSetsTheFileAside) {
  constexpr unsigned seed = 20261207;
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int flip = 0; flip < 60; ++flip) {
    fill();
    const auto size = fs::file_size(data_file());
    // Half of them in the first pages, where LMDB's own lie.
    const std::uint64_t at = random() % (flip % 2 == 0 ? size : std::min<std::uint64_t>(size, 40 * 1024));
    SCOPED_TRACE(at);
    std::fstream file(data_file(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const auto byte = static_cast<char>(file.get() ^ (1 << (random() % 8)));
    file.seekp(static_cast<std::streamoff>(at));
    file.put(byte);
    file.close();
    open(16 * mebi);
    expect_sound();
    start_over();
  }
}

TEST_F(StoreDamage, OtherThingsInTheFilesPlaceAreSetAside) {
  fill();
  fs::remove(data_file());
  fs::create_directories(data_file());
  open(16 * mebi);
  expect_sound();
  EXPECT_EQ(set_aside(), std::vector<std::string>{"v1.damaged-1"});
  start_over();
  fill();
  std::ofstream(data_file(), std::ios::binary | std::ios::trunc) << std::string(100'000, 'x');
  open(16 * mebi);
  expect_sound();
  EXPECT_EQ(set_aside(), std::vector<std::string>{"v1.damaged-1"});
}

TEST_F(StoreDamage, ANewerVersionIsSetAsideWhole) {
  fill();
  {
    auto environment = Environment::open(data_file().parent_path(), 16 * mebi);
    ASSERT_TRUE(environment);
    auto transaction = Transaction::begin(*environment, Transaction::Mode::write);
    ASSERT_TRUE(transaction);
    auto state = Ledger::read_state(*transaction);
    ASSERT_TRUE(state);
    state->version = store_version + 1;
    Ledger::write_state(*transaction, *state);
    ASSERT_TRUE(transaction->commit());
  }
  open(16 * mebi);
  EXPECT_EQ(set_aside(), std::vector<std::string>{"v1.foreign-1"});
  EXPECT_FALSE(get(0));
  expect_sound();
}

TEST_F(StoreDamage, OnlyTheLastFoldersSetAsideAreKept) {
  for (int round = 0; round < 4; ++round) {
    open(16 * mebi);
    put(1, 0, payload_bytes);
    tier_.reset();
    fs::resize_file(data_file(), 5000);
  }
  open(16 * mebi);
  EXPECT_EQ(set_aside(), (std::vector<std::string>{"v1.damaged-3", "v1.damaged-4"}));
}

// Writers killed at random moments, while another process has the store open and reads.
TEST_F(StoreDamage, AKilledWriterLosesNothingCommittedAndLeavesNothingHalf) {
  std::mt19937 random(7);
  for (int round = 0; round < 20; ++round) {
    SCOPED_TRACE(round);
    const pid_t writer = fork();
    if (writer == 0) {
      auto tier = StoreTier::open({.directory = directory_.path(), .bytes_max = 8 * mebi});
      for (std::int32_t session = round;; ++session) {
        (*tier)->put(id_of(session % 500, 0), frame_of(session % 500, 0, payload_bytes));
        if (session % 7 == 0) (*tier)->erase(id_of((session * 3) % 500, 0));
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5 + random() % 40));
    kill(writer, SIGKILL);
    waitpid(writer, nullptr, 0);
    const int status = in_child([&] {
      auto tier = StoreTier::open({.directory = directory_.path(), .bytes_max = 8 * mebi});
      if (!tier) return false;
      const auto verified = (*tier)->verify();
      return verified.tables_agree && verified.damaged == 0 &&
             (*tier)->put(id_of(2000 + round, 0), frame_of(2000 + round, 0, payload_bytes));
    });
    EXPECT_EQ(status, 0);
  }
  open(8 * mebi);
  EXPECT_TRUE(get(2019)) << "committed by the last process";
  EXPECT_TRUE(set_aside().empty());
}

TEST_F(StoreDamage, AProcessFindsWhatAnotherPut) {
  const int status = in_child([&] {
    auto tier = StoreTier::open({.directory = directory_.path(), .bytes_max = 8 * mebi});
    return tier && (*tier)->put(id_of(1, 0), frame_of(1, 0, payload_bytes));
  });
  EXPECT_EQ(status, 0);
  open(8 * mebi);
  EXPECT_TRUE(get(1));
}

// A limit on the size of files stands for a full disk: the kernel answers a write beyond it with an error.
TEST_F(StoreDamage, AFullDiskCostsPutsAlone) {
  const int status = in_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    open(16 * mebi);
    if (!put(1, 0, payload_bytes)) return false;
    rlimit limit{};
    getrlimit(RLIMIT_FSIZE, &limit);
    const rlimit tight{.rlim_cur = 1 * mebi, .rlim_max = limit.rlim_max};
    setrlimit(RLIMIT_FSIZE, &tight);
    std::int32_t session = 2;
    while (session < 200 && put(session, 0, payload_bytes)) ++session;
    if (session == 200 || !tier_->stats().degraded) return false;
    if (get(session) || !get(1)) return false;  // what was not written is not there, the rest is
    setrlimit(RLIMIT_FSIZE, &limit);
    if (put(session, 0, payload_bytes)) return false;  // not tried yet
    now_ = now_.load() + std::chrono::seconds(2);
    const bool again = put(session, 0, payload_bytes) && get(session) && !tier_->stats().degraded;
    const auto verified = tier_->verify();
    return again && verified.tables_agree && verified.damaged == 0;
  });
  EXPECT_EQ(status, 0);
  open(16 * mebi);
  EXPECT_TRUE(get(1));
}

}  // namespace
}  // namespace caravan::kv
