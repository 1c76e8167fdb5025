// Chat and completions end to end: sockets, workers, the real engine and the demo model.
#include <set>
#include <string>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "http/json_text.h"
#include "http/serving_fixture_test.h"

namespace caravan::http {
namespace {

namespace json = boost::json;

class Completions : public ServingTest {};

constexpr const char* chat_path = "/v1/chat/completions";

std::string text_of(const json::object& body, std::size_t choice = 0) {
  return std::string(body.at("choices").at(choice).at("message").at("content").as_string());
}

std::int64_t number(const json::value& value) { return value.to_number<std::int64_t>(); }

TEST_F(Completions, AnswersAChatWithUsageAndAccount) {
  serve({.node_id = "a"});
  const ClientAnswer answer =
      post(chat_path, chat_body("When does the desk open?", R"("max_tokens":16)"), {{"X-Session-Id", "s1"}});
  ASSERT_EQ(answer.status, 200U) << answer.body;
  EXPECT_EQ(answer.header("x-caravan-node"), "a");
  EXPECT_EQ(answer.header("content-type"), "application/json");
  const json::object body = json::parse(answer.body).as_object();
  EXPECT_EQ(body.at("object"), "chat.completion");
  EXPECT_EQ(body.at("model"), "desk");
  EXPECT_EQ(body.at("choices").at(0).at("message").at("role"), "assistant");
  EXPECT_FALSE(text_of(body).empty());
  const json::value& usage = body.at("usage");
  EXPECT_EQ(number(usage.at("total_tokens")),
            number(usage.at("prompt_tokens")) + number(usage.at("completion_tokens")));
  EXPECT_TRUE(usage.at("prompt_tokens_details").at("cached_tokens").is_number());
  const json::value& account = body.at("caravan");
  EXPECT_EQ(account.at("node"), "a");
  EXPECT_EQ(account.at("session"), "s1");
  EXPECT_EQ(number(account.at("computed")) + number(account.at("cached").at("device")),
            number(usage.at("prompt_tokens")));
}

TEST_F(Completions, TheSecondTimeIsCachedUnlessTheClientDoesNotWantIt) {
  serve();
  const std::string prompt(300, 'x');
  const json::object first = ask(chat_path, chat_body(prompt, R"("max_tokens":4)"));
  const json::object second = ask(chat_path, chat_body(prompt, R"("max_tokens":4)"));
  const json::object uncached = ask(chat_path, chat_body(prompt, R"("max_tokens":4,"cache_prompt":false)"));
  const auto cached = [](const json::object& body) {
    return number(body.at("usage").at("prompt_tokens_details").at("cached_tokens"));
  };
  EXPECT_EQ(cached(first), 0);
  EXPECT_GE(cached(second), number(second.at("usage").at("prompt_tokens")) - 64);
  EXPECT_LT(cached(second), number(second.at("usage").at("prompt_tokens")));
  EXPECT_EQ(cached(uncached), 0);
  EXPECT_EQ(uncached.at("caravan").at("miss").at("reason"), "disabled");
}

TEST_F(Completions, StreamsTheSameTextAsWithoutStreaming) {
  serve();
  const std::string fields = R"("max_tokens":24,"seed":1)";
  const json::object body = ask(chat_path, chat_body("Tell me about the library.", fields));
  const ClientAnswer answer = post(
      chat_path,
      chat_body("Tell me about the library.", fields + R"(,"stream":true,"stream_options":{"include_usage":true})"));
  ASSERT_EQ(answer.status, 200U) << answer.body;
  EXPECT_TRUE(answer.header("content-type").starts_with("text/event-stream"));
  const SseEvents stream = events_of(answer.body);
  EXPECT_TRUE(stream.done);
  EXPECT_EQ(joined(stream), text_of(body));
  std::set<std::string> ids;
  int roles = 0;
  int finishes = 0;
  int accounts = 0;
  for (const json::object& event : stream.events) {
    ids.insert(std::string(event.at("id").as_string()));
    accounts += event.contains("caravan") ? 1 : 0;
    if (event.at("choices").as_array().empty()) continue;
    const json::value& choice = event.at("choices").at(0);
    roles += choice.at("delta").as_object().contains("role") ? 1 : 0;
    finishes += choice.at("finish_reason").is_null() ? 0 : 1;
  }
  EXPECT_EQ(ids.size(), 1U);
  EXPECT_EQ(roles, 1);
  EXPECT_EQ(finishes, 1);
  EXPECT_EQ(accounts, 1);
  EXPECT_TRUE(stream.events.front().at("choices").at(0).at("delta").as_object().contains("role"));
  EXPECT_TRUE(stream.events.back().at("choices").as_array().empty());
  EXPECT_EQ(number(stream.events.back().at("usage").at("completion_tokens")),
            number(body.at("usage").at("completion_tokens")));
}

TEST_F(Completions, SeveralChoicesAndPromptsInOneRequest) {
  serve();
  const json::object body = ask(chat_path, chat_body("Hello", R"("n":3,"max_tokens":4,"temperature":1,"seed":5)"));
  ASSERT_EQ(body.at("choices").as_array().size(), 3U);
  EXPECT_EQ(body.at("choices").at(2).at("index"), 2);
  const json::object texts = ask(
      "/v1/completions", R"({"prompt":["The desk","The library"],"n":2,"max_tokens":4,"temperature":0,"echo":true})");
  ASSERT_EQ(texts.at("choices").as_array().size(), 4U);
  EXPECT_TRUE(std::string(texts.at("choices").at(0).at("text").as_string()).starts_with("The desk"));
  EXPECT_TRUE(std::string(texts.at("choices").at(3).at("text").as_string()).starts_with("The library"));
  EXPECT_EQ(texts.at("object"), "text_completion");
}

TEST_F(Completions, TokenPromptsAreTheSameAsTheirText) {
  serve();
  const auto tokens = demo_model().tokenize("The desk opens", engine::AddSpecial::yes, engine::ParseSpecial::yes);
  ASSERT_TRUE(tokens);
  const std::string fields = R"("max_tokens":8,"temperature":0})";
  const json::object from_text = ask("/v1/completions", R"({"prompt":"The desk opens",)" + fields);
  const json::object from_tokens =
      ask("/completions", fmt::format(R"({{"prompt":[{}],)", fmt::join(*tokens, ",")) + fields);
  EXPECT_EQ(from_text.at("choices").at(0).at("text"), from_tokens.at("choices").at(0).at("text"));
  EXPECT_EQ(post("/v1/completions", R"({"prompt":[999999999]})").status, 400U);
}

TEST_F(Completions, StopStringsEndTheText) {
  serve();
  const std::string whole = text_of(ask(chat_path, chat_body("Tell me about the library.", R"("max_tokens":24)")));
  ASSERT_GT(whole.size(), 8U);
  const std::string stop = whole.substr(5, 3);
  const std::string fields = R"("max_tokens":24,"stop":)" + to_text(json::value(json::string(stop)));
  const json::object body = ask(chat_path, chat_body("Tell me about the library.", fields));
  EXPECT_EQ(text_of(body), whole.substr(0, whole.find(stop)));
  EXPECT_EQ(body.at("choices").at(0).at("finish_reason"), "stop");
  const SseEvents stream =
      events_of(post(chat_path, chat_body("Tell me about the library.", fields + R"(,"stream":true)")).body);
  EXPECT_EQ(joined(stream), whole.substr(0, whole.find(stop)));
}

TEST_F(Completions, LogprobsComeForEveryTokenInBothShapes) {
  serve();
  for (int round = 0; round < 2; ++round) {  // the second time after a full hit
    const json::object chat = ask(chat_path, chat_body("Hello", R"("max_tokens":5,"logprobs":true,"top_logprobs":2)"));
    const json::array& content = chat.at("choices").at(0).at("logprobs").at("content").as_array();
    EXPECT_EQ(static_cast<std::int64_t>(content.size()), number(chat.at("usage").at("completion_tokens")));
    EXPECT_EQ(content.at(0).at("top_logprobs").as_array().size(), 2U);
    const json::object legacy =
        ask("/v1/completions", R"({"prompt":"Hello","max_tokens":5,"temperature":0,"logprobs":2})");
    EXPECT_EQ(static_cast<std::int64_t>(legacy.at("choices").at(0).at("logprobs").at("tokens").as_array().size()),
              number(legacy.at("usage").at("completion_tokens")));
  }
}

TEST_F(Completions, APromptLongerThanTheContextIsRefusedWithBothCounts) {
  auto small = small_engine();
  small.kv_cells = 256;
  serve({}, small);
  for (const char* stream : {"false", "true"}) {
    const ClientAnswer answer =
        post(chat_path, chat_body(std::string(4000, 'x'), std::string(R"("stream":)") + stream));
    EXPECT_EQ(answer.status, 400U);
    const json::object error = json::parse(answer.body).at("error").as_object();
    EXPECT_EQ(error.at("code"), "context_length_exceeded");
    EXPECT_EQ(number(error.at("n_ctx")), engine().status()->context_tokens);
    EXPECT_GT(number(error.at("n_prompt_tokens")), number(error.at("n_ctx")));
  }
  const json::object fits = ask(chat_path, chat_body("Hello", R"("max_tokens":100000)"));
  EXPECT_FALSE(fits.empty());
}

TEST_F(Completions, BadRequestsAreOpenAiShaped) {
  serve();
  for (const char* fields : {R"("temperature":-1)", R"("top_p":7)", R"("grammar":"nonsense")", R"("n":0)",
                             R"("logit_bias":{"99999999":1})", R"("mirostat":5)", R"("max_tokens":0)"}) {
    const ClientAnswer answer = post(chat_path, chat_body("x", fields));
    EXPECT_EQ(answer.status, 400U) << fields << answer.body;
    const json::object error = json::parse(answer.body).at("error").as_object();
    EXPECT_EQ(error.at("type"), "invalid_request_error");
    EXPECT_FALSE(error.at("message").as_string().empty());
  }
  EXPECT_EQ(json::parse(post(chat_path, chat_body("x", R"("top_p":7)")).body).at("error").at("param"), "top_p");
}

TEST_F(Completions, AFullQueueIs429WithRetryAfter) {
  auto small = small_engine();
  small.queue_max = 1;
  small.parallel = 1;
  serve({}, small);
  std::vector<std::unique_ptr<TestClient>> clients;
  int refused = 0;
  for (int i = 0; i < 12; ++i) {
    clients.push_back(std::make_unique<TestClient>(port()));
    clients.back()->send(
        request_text("POST", chat_path, chat_body("Hello", R"("max_tokens":400,"ignore_eos":true)"), {}));
  }
  for (auto& client : clients) {
    const auto answer = client->answer();
    ASSERT_TRUE(answer);
    if (answer->status == 200U) continue;
    EXPECT_EQ(answer->status, 429U) << answer->body;
    EXPECT_EQ(answer->header("retry-after"), "1");
    ++refused;
  }
  EXPECT_GT(refused, 0);
  EXPECT_LT(refused, 12);
  EXPECT_EQ(post(chat_path, chat_body("Hello", R"("max_tokens":2)")).status, 200U);
}

TEST_F(Completions, StreamsSayTheyAreAliveWhileTheyWait) {
  auto small = small_engine();
  small.parallel = 1;
  serve({.keep_alive_interval = std::chrono::milliseconds(20)}, small);
  TestClient busy(port());
  busy.send(
      request_text("POST", chat_path, chat_body("Hello", R"("max_tokens":500,"ignore_eos":true,"stream":true)"), {}));
  busy.receive_until("data: ");
  const SseEvents waited = events_of(post(chat_path, chat_body("Hi", R"("max_tokens":2,"stream":true)")).body);
  EXPECT_GT(waited.keep_alives, 0U);
  EXPECT_TRUE(waited.done);
}

TEST_F(Completions, KeysDecideTheTenantAndTheBodyCannot) {
  auto isolated = small_engine();
  isolated.tenant_isolation = true;
  serve({.api_keys = {{"a", "ka"}, {"b", "kb"}}}, isolated);
  const std::string body = chat_body(std::string(300, 'y'), R"("max_tokens":2,"user":"a","tenant":"a")");
  EXPECT_EQ(post(chat_path, body).status, 401U);
  EXPECT_EQ(get("/v1/models").status, 401U);
  EXPECT_EQ(get("/health").status, 200U);
  const auto cached = [&](const char* key) {
    return number(ask(chat_path, body, {{"Authorization", std::string("Bearer ") + key}})
                      .at("usage")
                      .at("prompt_tokens_details")
                      .at("cached_tokens"));
  };
  EXPECT_EQ(cached("ka"), 0);
  EXPECT_EQ(cached("kb"), 0);
  EXPECT_GT(cached("ka"), 0);
}

TEST_F(Completions, EmbeddingsComeAsFloatsOrBase64) {
  serve();
  const json::object floats = ask("/v1/embeddings", R"({"input":["Hello","Hello","Goodbye"],"model":"x"})");
  ASSERT_EQ(floats.at("data").as_array().size(), 3U);
  EXPECT_EQ(floats.at("data").at(0).at("embedding").as_array().size(), demo_model().info().embedding_length);
  EXPECT_EQ(floats.at("data").at(0).at("embedding"), floats.at("data").at(1).at("embedding"));
  EXPECT_NE(floats.at("data").at(0).at("embedding"), floats.at("data").at(2).at("embedding"));
  const json::object encoded = ask("/embeddings", R"({"input":"Hello","encoding_format":"base64"})");
  EXPECT_TRUE(encoded.at("data").at(0).at("embedding").is_string());
  std::string many = R"({"input":[")" + std::string("a");
  for (int i = 0; i < 99; ++i) many += R"(","a)";
  EXPECT_EQ(ask("/v1/embeddings", many + R"("]})").at("data").as_array().size(), 100U);
  EXPECT_EQ(post("/v1/embeddings", R"({"input":"a","dimensions":7})").status, 400U);
}

}  // namespace
}  // namespace caravan::http
