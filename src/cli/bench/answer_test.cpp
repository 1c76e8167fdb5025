#include "cli/bench/answer.h"

#include <gtest/gtest.h>

#include "cli/bench/http_client.h"

namespace caravan::cli::bench {
namespace {

using std::chrono::milliseconds;

class AnswerTest : public ::testing::Test {
 protected:
  void at(int ms, std::string_view data) { reader_.event(data, start_ + milliseconds(ms)); }
  TimePoint start_{};
  AnswerReader reader_{start_};
};

TEST_F(AnswerTest, TimesTextNotRoles) {
  at(5, R"({"choices":[{"delta":{"role":"assistant","content":""}}]})");
  at(50, R"({"choices":[{"delta":{"content":"one"}}]})");
  at(60, R"({"choices":[{"delta":{"content":" two"}}]})");
  at(75, R"({"choices":[{"delta":{"content":" three"}}]})");
  at(75, R"({"choices":[{"delta":{},"finish_reason":"length"}]})");
  at(76,
     R"({"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":64}}})");
  at(77, "[DONE]");
  reader_.end(start_ + milliseconds(80));
  const Record record = reader_.take();
  EXPECT_EQ(record.error, "");
  EXPECT_EQ(record.ttft_ms, 50);
  EXPECT_EQ(record.total_ms, 80);
  EXPECT_EQ(record.gaps_ms, (std::vector<double>{10, 15}));
  EXPECT_EQ(record.text, "one two three");
  EXPECT_EQ(record.prompt_tokens, 100U);
  EXPECT_EQ(record.completion_tokens, 3U);
  EXPECT_EQ(record.cached_tokens, 64U);
}

TEST_F(AnswerTest, WithoutUsagePiecesCountAndCachedIsUnknown) {
  at(1, R"({"choices":[{"delta":{"content":"a"}}]})");
  at(2, R"({"choices":[{"delta":{"content":"b"}}],"usage":null})");
  at(3, "[DONE]");
  reader_.end(start_ + milliseconds(3));
  EXPECT_FALSE(reader_.record().has_usage);
  EXPECT_EQ(reader_.record().completion_tokens, 2U);
  EXPECT_EQ(reader_.record().cached_tokens, std::nullopt);
}

TEST_F(AnswerTest, AStreamThatBreaksOffIsAnError) {
  at(1, R"({"choices":[{"delta":{"content":"a"}}]})");
  reader_.end(start_ + milliseconds(3));
  EXPECT_EQ(reader_.record().error, "the stream ended before [DONE]");
}

TEST_F(AnswerTest, ErrorsKeepTheServersWords) {
  at(1, R"({"error":{"message":"no room"}})");
  at(2, "[DONE]");
  reader_.end(start_ + milliseconds(3));
  EXPECT_EQ(reader_.record().error, "no room");
  AnswerReader other(start_);
  other.body(429, R"({"error":{"message":"queue full"}})", start_);
  EXPECT_EQ(other.record().error, "status 429: queue full");
  AnswerReader html(start_);
  html.body(502, "<html>", start_);
  EXPECT_EQ(html.record().error, "status 502");
}

TEST_F(AnswerTest, HostileAnswersAreErrors) {
  for (const char* data : {"{", "[]", "3", R"({"choices":3})", R"({"choices":[3]})", R"({"usage":[]})",
                           R"({"usage":{"prompt_tokens":-1,"completion_tokens":1e99}})"}) {
    AnswerReader reader(start_);
    reader.event(data, start_);
    reader.end(start_);
    EXPECT_NE(reader.record().error, "") << data;
    AnswerReader whole(start_);
    whole.body(200, data, start_);
    EXPECT_NE(whole.record().error, "") << data;
  }
}

TEST_F(AnswerTest, AWholeBody) {
  reader_.body(200, R"({"choices":[{"message":{"content":"hi"}}],"usage":{"prompt_tokens":9,"completion_tokens":1}})",
               start_ + milliseconds(30));
  EXPECT_EQ(reader_.record().error, "");
  EXPECT_EQ(reader_.record().text, "hi");
  EXPECT_EQ(reader_.record().total_ms, 30);
  EXPECT_EQ(reader_.record().ttft_ms, std::nullopt);
}

TEST(Url, PartsAndMistakes) {
  const auto plain = parse_url("http://127.0.0.1:8080/v1/");
  ASSERT_TRUE(plain.has_value());
  EXPECT_EQ(plain->host, "127.0.0.1");
  EXPECT_EQ(plain->port, "8080");
  EXPECT_EQ(plain->path, "");
  const auto tls = parse_url("https://example.org/llm/v1");
  ASSERT_TRUE(tls.has_value());
  EXPECT_TRUE(tls->tls);
  EXPECT_EQ(tls->port, "443");
  EXPECT_EQ(tls->path, "/llm");
  EXPECT_EQ(parse_url("http://[::1]:9").value().host, "::1");
  for (const char* text : {"", "127.0.0.1:8080", "ftp://a", "http://", "http://a b"}) {
    EXPECT_FALSE(parse_url(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace caravan::cli::bench
