// The server over real sockets, before any model: what it accepts, refuses and bounds.
#include "http/server.h"

#include <gtest/gtest.h>

#include "http/test_client.h"

namespace caravan::http {
namespace {

using std::chrono::milliseconds;

TEST(Server, AnswersHealthWhileLoading) {
  RunningServer running;
  running.server().set_loading(0.5F);
  TestClient client(running.port());
  const auto answer = client.get("/health");
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 503U);
  EXPECT_NE(answer->body.find("Loading model"), std::string::npos) << answer->body;
  EXPECT_EQ(answer->header("retry-after"), "1");
  EXPECT_EQ(answer->header("x-caravan-node"), running.server().url().substr(7));
}

TEST(Server, KeepsTheConnectionForTheNextRequest) {
  RunningServer running;
  TestClient client(running.port());
  for (int i = 0; i < 3; ++i) {
    const auto answer = client.get("/");
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->status, 200U);
  }
  client.send(request_text("GET", "/", {}, {{"Connection", "close"}}));
  ASSERT_TRUE(client.answer());
  EXPECT_TRUE(client.closed_by_server(milliseconds(2000)));
}

TEST(Server, AnswersPipelinedRequestsInOrder) {
  RunningServer running;
  TestClient client(running.port());
  client.send(request_text("GET", "/", {}, {}) + request_text("GET", "/nothing", {}, {}) +
              request_text("GET", "/health", {}, {}));
  EXPECT_EQ(client.answer()->status, 200U);
  EXPECT_EQ(client.answer()->status, 404U);
  EXPECT_EQ(client.answer()->status, 503U);
}

TEST(Server, HeadHasNoBody) {
  RunningServer running;
  TestClient client(running.port());
  client.send(request_text("HEAD", "/", {}, {{"Connection", "close"}}));
  const std::string all = client.receive_all();
  EXPECT_TRUE(all.starts_with("HTTP/1.1 200 OK\r\n")) << all;
  EXPECT_TRUE(all.ends_with("\r\n\r\n"));
}

TEST(Server, UnknownPathIs404AndWrongMethod405) {
  RunningServer running;
  TestClient client(running.port());
  const auto missing = client.get("/v2/chat");
  ASSERT_TRUE(missing);
  EXPECT_EQ(missing->status, 404U);
  EXPECT_NE(missing->body.find(R"("error":{"message":"there is no /v2/chat)"), std::string::npos) << missing->body;
  const auto wrong = client.post("/health", "");
  ASSERT_TRUE(wrong);
  EXPECT_EQ(wrong->status, 405U);
}

TEST(Server, RefusesABodyBeyondTheLimitAndSaysSo) {
  RunningServer running({.body_bytes_max = 2048});
  TestClient client(running.port());
  const auto answer = client.post("/", std::string(std::size_t{1} << 20, 'x'));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 413U);
  EXPECT_NE(answer->body.find("2048"), std::string::npos) << answer->body;
}

TEST(Server, RefusesALongHeader) {
  RunningServer running;
  TestClient client(running.port());
  client.send("GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: " + std::string(40000, 'x') + "\r\n\r\n");
  const auto answer = client.answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 431U);
}

TEST(Server, RefusesWhatIsNotHttp) {
  RunningServer running;
  for (const char* junk :
       {"\x16\x03\x01\x02\r\n\r\n", "GET\r\n\r\n", "GET / HTTP/9.9\r\n\r\n", "\r\n\r\n\r\n\r\nfoo\r\n\r\n",
        "GET /%zz HTTP/1.1\r\n\r\n", "POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"}) {
    TestClient client(running.port());
    client.send(junk);
    const auto answer = client.answer();
    ASSERT_TRUE(answer) << junk;
    EXPECT_EQ(answer->status, 400U) << junk;
  }
}

TEST(Server, CutsAClientThatSendsItsHeaderTooSlowly) {
  RunningServer running({.header_timeout = milliseconds(100)});
  TestClient client(running.port());
  client.send("GET / HT");
  EXPECT_TRUE(client.closed_by_server(milliseconds(3000)));
}

TEST(Server, ClosesAnIdleConnection) {
  RunningServer running({.idle_timeout = milliseconds(100)});
  TestClient client(running.port());
  ASSERT_TRUE(client.get("/"));
  EXPECT_TRUE(client.closed_by_server(milliseconds(3000)));
}

TEST(Server, RefusesConnectionsBeyondTheLimit) {
  RunningServer running({.connections_max = 2});
  TestClient first(running.port());
  TestClient second(running.port());
  ASSERT_TRUE(first.get("/"));
  ASSERT_TRUE(second.get("/"));
  TestClient third(running.port());
  const auto answer = third.answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 503U);
  ASSERT_TRUE(first.get("/"));  // the others are not harmed
  second.close();
  EXPECT_TRUE(comes_true([&] { return TestClient(running.port()).get("/")->status == 200U; }));
}

TEST(Server, PreflightIsAnsweredWithTheConfiguredOrigin) {
  RunningServer running({.cors_origin = "https://chat.example"});
  TestClient client(running.port());
  client.send(request_text("OPTIONS", "/v1/chat/completions", {},
                           {{"Origin", "https://chat.example"}, {"Access-Control-Request-Headers", "x-api-key"}}));
  const auto answer = client.answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->status, 204U);
  EXPECT_EQ(answer->header("access-control-allow-origin"), "https://chat.example");
  EXPECT_EQ(answer->header("access-control-allow-headers"), "x-api-key");
  RunningServer without;
  TestClient other(without.port());
  EXPECT_EQ(other.get("/")->header("access-control-allow-origin"), "");
}

TEST(Server, StopsAtOnceAndDrainsWhenIdle) {
  RunningServer stopped;
  TestClient client(stopped.port());
  ASSERT_TRUE(client.get("/"));
  stopped.server().stop();
  EXPECT_TRUE(stopped.ends_within(milliseconds(2000)));
  RunningServer drained;
  TestClient other(drained.port());
  ASSERT_TRUE(other.get("/"));
  drained.server().drain();
  EXPECT_TRUE(drained.ends_within(milliseconds(2000)));
}

TEST(Server, AnAddressInUseIsOneClearLine) {
  RunningServer running;
  prometheus::Registry registry;
  const auto second = Server::create({.port = running.port()}, registry);
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ErrorCode::io);
  EXPECT_NE(second.error().message.find("choose another --port"), std::string::npos) << second.error().message;
}

}  // namespace
}  // namespace caravan::http
