#include "cli/options.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "cli/command.h"

namespace caravan::cli {
namespace {

struct Read {
  ServeOptions options;
  std::string error;
};

Read read(const std::vector<std::string>& arguments, const Environment& environment = {}) {
  Read out;
  const auto wanted = serve_table(out.options).read(arguments, environment);
  if (!wanted) {
    out.error = wanted.error().message;
  } else if (const Status status = complete(out.options); !status) {
    out.error = status.error().message;
  }
  return out;
}

TEST(ServeOptions, LlamaServersShortNamesWork) {
  const auto [options, error] = read({"-m",  "m.gguf", "-c",  "4096", "-ngl",   "20",  "-t",     "2",    "-tb",  "3",
                                      "-b",  "1024",   "-ub", "256",  "-np",    "4",   "-ctk",   "q8_0", "-ctv", "q4_0",
                                      "-fa", "on",     "-a",  "name", "--host", "::1", "--port", "0"});
  ASSERT_EQ(error, "");
  EXPECT_EQ(options.model.path, "m.gguf");
  EXPECT_EQ(options.model.gpu_layers, 20);
  EXPECT_EQ(options.model.alias, "name");
  EXPECT_EQ(options.engine.kv_cells, 4096U);
  EXPECT_EQ(options.engine.threads, 2U);
  EXPECT_EQ(options.engine.threads_batch, 3U);
  EXPECT_EQ(options.engine.batch_tokens, 1024U);
  EXPECT_EQ(options.engine.ubatch_tokens, 256U);
  EXPECT_EQ(options.engine.parallel, 4U);
  EXPECT_EQ(options.engine.type_k, "q8_0");
  EXPECT_EQ(options.engine.type_v, "q4_0");
  EXPECT_EQ(options.engine.flash_attention, engine::FlashAttention::on);
  EXPECT_EQ(options.server.host, "::1");
  EXPECT_EQ(options.server.port, 0);
  EXPECT_EQ(read({"-ngl", "-1"}).options.model.gpu_layers, -1);
  EXPECT_EQ(read({"-ngl", "all"}).options.model.gpu_layers, -1);
  EXPECT_EQ(read({"-c", "auto"}).options.engine.kv_cells, 0U);
  EXPECT_FALSE(read({"--no-kv-cache"}).options.engine.kv_cache);
}

TEST(ServeOptions, WhatThisVersionCannotDoIsRefused) {
  EXPECT_EQ(read({"--share", "process"}).error, "");
  EXPECT_EQ(read({"--share", "mmap"}).error,
            "--share mmap: this version shares within one process; give --share process");
  EXPECT_EQ(read({"--share", "rpc"}).error,
            "--share rpc: this version shares within one process; give --share process");
  EXPECT_EQ(read({"--share", "procss"}).error, "--share procss: give process");
  EXPECT_EQ(read({"--distributed"}).error, "--distributed: this version serves from one process; leave it out");
  EXPECT_NE(read({"--cache-dir", "/tmp"}).error.find("unknown flag --cache-dir"), std::string::npos);
}

TEST(ServeOptions, TypingMistakesGetTheNearestName) {
  EXPECT_EQ(read({"--kvsise", "1"}).error, "unknown flag --kvsise; did you mean --kvsize?");
  EXPECT_EQ(read({"--paralel", "1"}).error, "unknown flag --paralel; did you mean --parallel?");
  EXPECT_EQ(read({"-ctz", "f16"}).error.substr(0, 30), "unknown flag -ctz; did you mea");
  EXPECT_EQ(read({"-ctk", "q8"}).error,
            "--cache-type-k q8: give one of f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0, q5_1; did you mean q8_0?");
}

TEST(ServeOptions, OptionsThatContradictEachOtherAreRefused) {
  EXPECT_EQ(read({"-b", "256", "-ub", "512"}).error,
            "--ubatch-size 512 is more than --batch-size 256; give at most that");
  EXPECT_EQ(read({"--keep", "4"}).error, "--keep 4 does nothing without --context-shift; give both or neither");
  EXPECT_EQ(read({"--keep", "4", "--context-shift"}).error, "");
  EXPECT_EQ(read({"-ctv", "q8_0", "-fa", "off"}).error,
            "--cache-type-v q8_0 needs flash attention; leave out --flash-attn off");
  EXPECT_EQ(read({"-ctk", "q8_0", "-fa", "off"}).error, "");
  EXPECT_NE(read({"--tenant-isolation"}).error, "");
  EXPECT_EQ(read({"--tenant-isolation", "--api-key", "k"}).error, "");
}

TEST(ServeOptions, KeysBecomeTenants) {
  const auto [options, error] = read({"--api-key", "one,two"}, {{"CARAVAN_API_KEY", "three"}});
  ASSERT_EQ(error, "");
  ASSERT_EQ(options.server.api_keys.size(), 2U);
  EXPECT_EQ(options.server.api_keys[0].name, "default");
  EXPECT_EQ(options.server.api_keys[0].secret, "one");
  EXPECT_EQ(options.server.api_keys[1].name, "default-2");
  EXPECT_EQ(read({"--api-key", "same,same"}).error.find("same API key") == std::string::npos, false);
  EXPECT_EQ(read({"--api-key-file", "/nonexistent"}).error, "cannot read the API key file /nonexistent");
}

TEST(Commands, BriefHelpFitsAScreen) {
  for (const auto& command : commands()) {
    const std::string help = command.help(HelpStyle::brief);
    EXPECT_LE(std::ranges::count(help, '\n'), 55) << help;
    std::istringstream lines(help);
    for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 120U) << line;
    EXPECT_NE(help.find("example"), std::string::npos);
  }
}

TEST(Commands, TheOptionsPageIsWhatTheTableSays) {
  std::ifstream file(CARAVAN_SOURCE_DIR "/docs/options.md");
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_EQ(page.str(), options_markdown()) << "run: build/caravan help options --markdown > docs/options.md";
}

TEST(Commands, UsageErrorsAreExitCodeTwo) {
  const auto code = [](const std::vector<std::string>& arguments) { return run("caravan", arguments, {}); };
  EXPECT_EQ(code({}), exit_usage);
  EXPECT_EQ(code({"sevre"}), exit_usage);
  EXPECT_EQ(code({"-m", "model.gguf"}), exit_usage);
  EXPECT_EQ(code({"serve", "--prot", "1"}), exit_usage);
  EXPECT_EQ(code({"serve", "-m", "/nonexistent.gguf", "--port", "0"}), exit_failed);
  EXPECT_EQ(code({"--version"}), exit_fine);
  EXPECT_EQ(code({"help"}), exit_fine);
  EXPECT_EQ(code({"serve", "-h"}), exit_fine);
}

}  // namespace
}  // namespace caravan::cli
