// Clients that go away, do not read, or hold on while the server wants to stop.
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "http/serving_fixture_test.h"

namespace caravan::http {
namespace {

using std::chrono::milliseconds;

constexpr const char* chat_path = "/v1/chat/completions";
// Runs until the context is full.
constexpr const char* endless = R"("ignore_eos":true,"stream":true)";
constexpr const char* endless_body = R"("ignore_eos":true)";

class Clients : public ServingTest {
 protected:
  std::unique_ptr<TestClient> start(std::string_view fields) {
    auto client = std::make_unique<TestClient>(port());
    client->send(request_text("POST", chat_path, chat_body("Hello there", fields), {}));
    return client;
  }
  bool is_running() {
    return comes_true([this] { return engine().status()->running > 0; });
  }
};

TEST_F(Clients, ThatLeaveAStreamFreeWhatTheyHeld) {
  serve();
  for (const auto leave : {+[](TestClient& client) { client.close(); }, +[](TestClient& client) { client.reset(); },
                           +[](TestClient& client) { client.half_close(); }}) {
    const auto before = engine().status()->tokens_generated;
    auto client = start(endless);
    client->receive_until("data: ");
    leave(*client);
    EXPECT_TRUE(goes_idle());
    EXPECT_LT(engine().status()->tokens_generated - before, 1000U) << "it was cancelled, not finished";
  }
  EXPECT_EQ(post(chat_path, chat_body("Hi", R"("max_tokens":2)")).status, 200U);
}

TEST_F(Clients, ThatLeaveWhileTheirBodyIsComputedFreeWhatTheyHeld) {
  serve();
  for (const auto leave : {+[](TestClient& client) { client.close(); }, +[](TestClient& client) { client.reset(); },
                           +[](TestClient& client) { client.half_close(); }}) {
    const auto before = engine().status()->tokens_generated;
    auto client = start(endless_body);
    ASSERT_TRUE(is_running());
    leave(*client);
    EXPECT_TRUE(goes_idle());
    EXPECT_LT(engine().status()->tokens_generated - before, 1000U);
  }
}

TEST_F(Clients, ThatLeaveTheQueueNeverRun) {
  auto one = small_engine();
  one.parallel = 1;
  serve({}, one);
  auto busy = start(endless);
  busy->receive_until("data: ");
  std::vector<std::unique_ptr<TestClient>> waiting;
  waiting.reserve(40);
  for (int i = 0; i < 8; ++i) waiting.push_back(start(R"("max_tokens":50)"));
  ASSERT_TRUE(comes_true([this] { return engine().status()->waiting == 8; }));
  waiting.clear();
  EXPECT_TRUE(comes_true([this] { return engine().status()->waiting == 0; }, milliseconds(2000)));
  busy.reset();
  EXPECT_TRUE(goes_idle());
}

TEST_F(Clients, FortyStreamsClosedAfterThreeChunks) {
  serve();
  std::vector<std::unique_ptr<TestClient>> clients;
  clients.reserve(40);
  for (int i = 0; i < 40; ++i) clients.push_back(start(endless));
  ASSERT_TRUE(comes_true([this] { return engine().status()->tokens_generated > 40; }));
  ASSERT_TRUE(comes_true([this] { return engine().status()->waiting > 30; }));
  for (std::size_t i = 0; i < clients.size(); ++i) i % 2 == 0 ? clients[i]->close() : clients[i]->reset();
  EXPECT_TRUE(goes_idle());
  EXPECT_EQ(post(chat_path, chat_body("Hi", R"("max_tokens":2)")).status, 200U);
  EXPECT_TRUE(comes_true([this] { return metric("caravan_http_streams") == 0.0; }));
}

// Logprobs make some kilobytes a token, so that the sockets' buffers fill long before the context does.
constexpr const char* with_much_output = R"("n":4,"ignore_eos":true,"stream":true,"logprobs":true,"top_logprobs":20)";

TEST_F(Clients, ThatDoNotReadAreCutAtTheBound) {
  serve({.stream_bytes_max = std::size_t{64} << 10, .write_timeout = std::chrono::seconds(600)});
  const auto client = start(with_much_output);
  EXPECT_TRUE(
      comes_true([this] { return metric("caravan_http_clients_gone_total") == 1.0; }, std::chrono::seconds(30)));
  EXPECT_TRUE(goes_idle());
}

TEST_F(Clients, ThatStopReadingAreCutAfterTheWriteTimeout) {
  serve({.stream_bytes_max = std::size_t{64} << 20, .write_timeout = milliseconds(200)});
  const auto client = start(with_much_output);
  EXPECT_TRUE(
      comes_true([this] { return metric("caravan_http_clients_gone_total") == 1.0; }, std::chrono::seconds(30)));
  EXPECT_TRUE(goes_idle());
}

TEST_F(Clients, ThatReadGetAllOfALargeStream) {
  serve({.stream_bytes_max = std::size_t{64} << 10});
  const ClientAnswer answer =
      post(chat_path, chat_body("Hello there", std::string(with_much_output) + R"(,"max_tokens":200)"));
  EXPECT_TRUE(events_of(answer.body).done);
  EXPECT_EQ(metric("caravan_http_clients_gone_total"), 0.0);
}

TEST_F(Clients, MayPipelineTheirNextRequest) {
  serve();
  TestClient client(port());
  const std::string one = request_text("POST", chat_path, chat_body("Hello", R"("max_tokens":20)"), {});
  client.send(one + one + request_text("GET", "/health", {}, {}));
  for (int i = 0; i < 3; ++i) {
    const auto answer = client.answer();
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status, 200U);
  }
}

TEST_F(Clients, MaySendTheirBodyInChunksOrAskFirst) {
  serve();
  const std::string body = chat_body("Hello", R"("max_tokens":2)");
  const std::string head = fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\n", chat_path);
  TestClient chunked(port());
  chunked.send(head + "Transfer-Encoding: chunked\r\n\r\n");
  for (const char byte : body) chunked.send(fmt::format("1\r\n{}\r\n", byte));
  chunked.send("0\r\n\r\n");
  EXPECT_EQ(chunked.answer()->status, 200U);
  TestClient asking(port());
  asking.send(head + fmt::format("Expect: 100-continue\r\nContent-Length: {}\r\n\r\n", body.size()));
  EXPECT_EQ(asking.receive(), "HTTP/1.1 100 Continue\r\n\r\n");
  asking.send(body);
  EXPECT_EQ(asking.answer()->status, 200U);
  for (const char* framing :
       {"Transfer-Encoding: chunked\r\n\r\nzz\r\n", "Content-Length: 3\r\nContent-Length: 4\r\n\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n"}) {
    TestClient wrong(port());
    wrong.send(head + framing);
    EXPECT_EQ(wrong.answer()->status, 400U) << framing;
  }
}

TEST_F(Clients, KeepTheirConnectionAfterAStream) {
  serve();
  TestClient client(port());
  for (int i = 0; i < 3; ++i) {
    const auto answer = client.post(chat_path, chat_body("Hello", R"("max_tokens":3,"stream":true)"));
    ASSERT_TRUE(answer);
    EXPECT_TRUE(events_of(answer->body).done);
  }
}

TEST_F(Clients, OfHttp10GetAStreamWithoutChunks) {
  serve();
  const std::string body = chat_body("Hello", R"("max_tokens":3,"stream":true)");
  TestClient client(port());
  client.send(fmt::format("POST {} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{}", chat_path, body.size(), body));
  const std::string all = client.receive_all();
  const auto end = all.find("\r\n\r\n");
  ASSERT_NE(end, std::string::npos);
  EXPECT_TRUE(events_of(all.substr(end + 4)).done);
}

TEST_F(Clients, FinishTheirRequestsWhileTheServerDrains) {
  serve({.drain_timeout = std::chrono::seconds(20)});
  auto client = start(R"("max_tokens":300,"ignore_eos":true,"stream":true)");
  const std::string begun = client->receive_until("data: ");
  running().server().drain();
  ASSERT_TRUE(comes_true([this] { return get("/health").status == 503U; }));
  EXPECT_EQ(post(chat_path, chat_body("Hi")).status, 503U);
  const std::string all = begun + client->receive_all();
  EXPECT_NE(all.find("data: [DONE]"), std::string::npos);
  EXPECT_TRUE(running().ends_within(milliseconds(3000)));
}

TEST_F(Clients, AreCutWhenTheDrainTimeIsOver) {
  serve({.drain_timeout = milliseconds(100)});
  auto client = start(endless);
  client->receive_until("data: ");
  running().server().drain();
  EXPECT_TRUE(running().ends_within(milliseconds(3000)));
  EXPECT_TRUE(goes_idle());
  EXPECT_EQ(client->receive_all().find("[DONE]"), std::string::npos);
}

TEST_F(Clients, AreAnsweredByHealthWhileTheEngineIsBusy) {
  serve();
  std::vector<std::unique_ptr<TestClient>> clients;
  clients.reserve(40);
  for (int i = 0; i < 8; ++i) clients.push_back(start(endless));
  ASSERT_TRUE(is_running());
  for (int i = 0; i < 10; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(get("/health").status, 200U);
    EXPECT_EQ(get("/metrics").status, 200U);
    EXPECT_LT(std::chrono::steady_clock::now() - begin, milliseconds(400));
  }
}

}  // namespace
}  // namespace caravan::http
