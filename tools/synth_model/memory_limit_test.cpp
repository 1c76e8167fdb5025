// A process with little memory: the largest context that fits is chosen, and it stays inside.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>
#include <prometheus/registry.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "engine/engine_fixture.h"
#include "engine/model.h"
#include "file.h"
#include "shapes.h"
#include "tokenizer.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CARAVAN_SANITIZER_MAPS_ADDRESSES 1
#endif
#endif

namespace caravan::engine {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t gibi = std::uint64_t{1} << 30;

// 2 KiB of KV a token, and as much for the mask.
fs::path write_model(std::uint32_t context) {
  const synth::Tokenizer tokenizer = synth::demo_tokenizer();
  const synth::Shape shape = *synth::find_shape("dense");
  synth::Dimensions dimensions = shape.defaults;
  dimensions.kv_heads = 4;
  dimensions.context = context;
  const auto plan = synth::plan_model(shape, dimensions, shape.type,
                                      static_cast<std::uint32_t>(tokenizer.tokens.size()), tokenizer.control);
  const fs::path path = fs::path(testing::TempDir()) / fmt::format("memory_limit_{}_{}.gguf", context, getpid());
  EXPECT_TRUE(synth::write_model(*plan, tokenizer, 1, 1, path).has_value());
  return path;
}

// Serves one request under the limit and prints "cells N" on stderr; for a process of its own.
[[noreturn]] void serve_within(const fs::path& path, std::uint64_t limit_bytes) {
  const rlimit limit{.rlim_cur = limit_bytes, .rlim_max = limit_bytes};
  if (setrlimit(RLIMIT_AS, &limit) != 0) std::_Exit(2);
  const auto model = Model::load({.path = path});
  if (!model) {
    std::fprintf(stderr, "%s\n", model.error().message.c_str());
    std::_Exit(3);
  }
  HandDrivenEngine engine(**model, {.threads = 1});
  if (engine.error()) {
    std::fprintf(stderr, "%s\n", engine.error()->message.c_str());
    std::_Exit(4);
  }
  const auto answer = engine.ask(HandDrivenEngine::greedy(engine.tokens("Items can be returned within 42 days."), 8));
  if (!answer->done || answer->error) std::_Exit(5);
  std::fprintf(stderr, "cells %u\n", engine.status().cells_total);
  std::_Exit(0);
}

class MemoryLimit : public testing::Test {
 protected:
  void SetUp() override {
#ifdef CARAVAN_SANITIZER_MAPS_ADDRESSES
    GTEST_SKIP() << "a sanitizer takes more addresses than any limit leaves";
#endif
  }
  // 0: it did not serve.
  static std::uint32_t cells_within(const fs::path& path, std::uint64_t limit_bytes) {
    int pipe_ends[2];
    if (pipe(pipe_ends) != 0) return 0;
    const pid_t child = fork();
    if (child == 0) {
      dup2(pipe_ends[1], STDERR_FILENO);
      close(pipe_ends[0]);
      serve_within(path, limit_bytes);
    }
    close(pipe_ends[1]);
    std::string said;
    char buffer[512];
    for (ssize_t got = 0; (got = read(pipe_ends[0], buffer, sizeof(buffer))) > 0;) {
      said.append(buffer, static_cast<std::size_t>(got));
    }
    close(pipe_ends[0]);
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status) << ": " << said;
    EXPECT_EQ(WEXITSTATUS(status), 0) << said;
    const auto at = said.find("cells ");
    return at == std::string::npos ? 0 : static_cast<std::uint32_t>(std::strtoul(said.c_str() + at + 6, nullptr, 10));
  }
};

TEST_F(MemoryLimit, ALongContextIsCutToWhatFits) {
  const fs::path path = write_model(1 << 20);
  const std::uint32_t one = cells_within(path, gibi);
  const std::uint32_t two = cells_within(path, 2 * gibi);
  fs::remove(path);
  // Half a gibibyte goes to the reserve and the program; a token takes 2 KiB and 1.1 KiB of mask.
  EXPECT_GT(one, 100'000U);
  EXPECT_LT(one, 300'000U);
  EXPECT_GT(two, 2 * one);
  EXPECT_LT(two, 700'000U);
}

TEST_F(MemoryLimit, AShortContextIsKeptWhole) {
  const fs::path path = write_model(2048);
  const std::uint32_t cells = cells_within(path, gibi);
  fs::remove(path);
  EXPECT_EQ(cells, 16 * 2048U);
}

}  // namespace
}  // namespace caravan::engine
