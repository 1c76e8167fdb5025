// The bench as it is run: the real program, servers that it starts, the demo model.
#include <array>
#include <cstdio>
#include <string>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include "cli/bench/child_server.h"

namespace caravan::cli::bench {
namespace {

const std::string program = CARAVAN_BUILD_DIR "/caravan";

struct Outcome {
  int code = -1;
  std::string out;
};

Outcome run(const std::string& arguments) {
  Outcome outcome;
  std::FILE* pipe = popen((program + " " + arguments + " 2>&1").c_str(), "r");
  std::array<char, 4096> buffer{};
  for (std::size_t read = 0; (read = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    outcome.out.append(buffer.data(), read);
  }
  const int status = pclose(pipe);
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

TEST(Bench, TwoServersTakeTurnsAndOneShares) {
  const Outcome outcome =
      run("bench shared-prefix --serve '-np 4 -c 8192 -t 1' --compare-serve '-np 4 -c 8192 -t 1 --no-kv-cache' "
          "--users 4 --prefix 300 --question 20 --answer 12 --waves 2 --wave repeat --json");
  ASSERT_EQ(outcome.code, 0) << outcome.out;
  const auto report = boost::json::parse(outcome.out);
  EXPECT_TRUE(report.at("prompts_exact").as_bool());
  const auto& sharing = report.at("servers").at(0);
  const auto& alone = report.at("servers").at(1);
  for (const auto* server : {&sharing, &alone}) {
    EXPECT_EQ(server->at("all").at("requests").as_int64(), 8);
    EXPECT_EQ(server->at("all").at("failed").as_int64(), 0);
    EXPECT_EQ(server->at("all").at("completion_tokens").as_int64(), 8 * 12);
    EXPECT_GT(server->at("all").at("prompt_tokens").as_int64(), 8 * 320);
    EXPECT_GT(server->at("cells_peak").as_int64(), 320);
  }
  EXPECT_EQ(sharing.at("all").at("prompt_tokens"), alone.at("all").at("prompt_tokens")) << "both were asked the same";
  EXPECT_GE(sharing.at("waves").at(0).at("cached_part").as_double(), 0.6);
  EXPECT_GE(sharing.at("waves").at(1).at("cached_part").as_double(), 0.98);
  EXPECT_EQ(alone.at("all").at("cached_tokens").as_int64(), 0);
  EXPECT_TRUE(report.at("compared").as_object().contains("ttft_ms_mean"));
}

TEST(Bench, FollowUpsFindTheirHistory) {
  const Outcome outcome =
      run("bench multi-turn --serve '-np 2 -c 8192 -t 1' --users 2 --turns 3 --prefix 100 --question 20 --answer 12 "
          "--json");
  ASSERT_EQ(outcome.code, 0) << outcome.out;
  const auto report = boost::json::parse(outcome.out);
  EXPECT_GE(report.at("servers").at(0).at("all").at("history_cached_part").as_double(), 0.8);
}

TEST(Bench, AServerThatIsNotThereIsAFailure) {
  const Outcome outcome = run("bench shared-prefix --url http://127.0.0.1:1 --users 1");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_EQ(outcome.out, "caravan: cannot connect to 127.0.0.1:1: Connection refused\n");
}

TEST(Bench, RequestsThatFailAreShownAndMakeItFail) {
  const Outcome outcome =
      run("bench all-unique --serve '-np 1 -c 512 -t 1' --users 2 --prefix 1000 --question 20 --answer 4");
  EXPECT_EQ(outcome.code, 1);
  EXPECT_NE(outcome.out.find("A: 2 failed: status 400"), std::string::npos) << outcome.out;
}

TEST(ChildServer, ServesUntilItIsStopped) {
  auto child = ChildServer::start(program, {"-t", "1", "-c", "1024"}, std::chrono::seconds(60));
  ASSERT_TRUE(child.has_value()) << child.error().message;
  EXPECT_TRUE(child->url().starts_with("http://127.0.0.1:")) << child->url();
  const std::string arguments = "bench all-unique --users 1 --prefix 20 --question 5 --answer 2 --url " + child->url();
  EXPECT_EQ(run(arguments).code, 0);
  child->stop();
  EXPECT_EQ(run(arguments).code, 1);
}

TEST(ChildServer, ItsLastWordsSayWhyItEnded) {
  const auto child = ChildServer::start(program, {"--kvsise", "1"}, std::chrono::seconds(60));
  ASSERT_FALSE(child.has_value());
  EXPECT_EQ(child.error().message,
            "the server that was started ended: caravan: unknown flag --kvsise; did you mean --kvsize?");
  EXPECT_FALSE(ChildServer::start("/nonexistent/caravan", {}, std::chrono::seconds(5)).has_value());
}

}  // namespace
}  // namespace caravan::cli::bench
