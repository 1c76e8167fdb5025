// What the server says about itself and its model.
#include <string>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "http/json_text.h"
#include "http/routes.h"
#include "http/serving_fixture_test.h"

namespace caravan::http {
namespace {

namespace json = boost::json;

class StatusCalls : public ServingTest {
 protected:
  json::value json_of(std::string_view path, const Headers& headers = {}) {
    const ClientAnswer answer = get(path, headers);
    EXPECT_EQ(answer.status, 200U) << path << answer.body;
    return answer.status == 200U ? json::parse(answer.body) : json::value();
  }
};

TEST_F(StatusCalls, TokensComeBackAsTheirText) {
  serve();
  const json::object made = ask("/tokenize", R"({"content":"The desk 中文","with_pieces":true})");
  std::string ids;
  for (const json::value& token : made.at("tokens").as_array()) {
    if (!ids.empty()) ids += ',';
    ids += to_text(token.at("id"));
    EXPECT_TRUE(token.at("piece").is_string() || token.at("piece").is_array());
  }
  EXPECT_EQ(ask("/detokenize", R"({"tokens":[)" + ids + "]}").at("content"), "The desk 中文");
  EXPECT_EQ(to_text(ask("/tokenize", R"({"content":"The desk 中文"})").at("tokens")), "[" + ids + "]");
  for (const char* body : {"", "{}", R"({"content":1})", R"({"content":"\u0000"})"})
    EXPECT_EQ(post("/tokenize", body).status, 400U) << body;
  for (const char* body : {"{}", R"({"tokens":"x"})", R"({"tokens":[-1]})", R"({"tokens":[99999999]})"})
    EXPECT_EQ(post("/detokenize", body).status, 400U) << body;
}

TEST_F(StatusCalls, TheTemplateIsApplied) {
  serve();
  const json::object made = ask("/apply-template", R"({"messages":[{"role":"user","content":"Hello"}]})");
  EXPECT_EQ(made.at("prompt"), "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(post("/apply-template", R"({"messages":[]})").status, 400U);
}

TEST_F(StatusCalls, ModelsAreListedWithAndWithoutVersion) {
  serve();
  for (const char* path : {"/v1/models", "/models"}) EXPECT_EQ(json_of(path).at("data").at(0).at("id"), "desk");
  EXPECT_EQ(json_of("/v1/models/desk").at("object"), "model");
  const ClientAnswer unknown = get("/v1/models/other");
  EXPECT_EQ(unknown.status, 404U);
  EXPECT_NE(unknown.body.find(R"("code":"model_not_found")"), std::string::npos) << unknown.body;
  EXPECT_EQ(get("/v1/models/").status, 404U);
}

TEST_F(StatusCalls, HoldNoText) {
  serve();
  const std::string secret = "xyzzy-plugh-1234";
  ASSERT_EQ(post("/v1/chat/completions",
                 R"({"messages":[{"role":"user","content":")" + secret + R"("}],"max_tokens":4,"user":"s7"})")
                .status,
            200U);
  for (const char* path : {"/props", "/slots", "/metrics", "/caravan/v1/cache", "/caravan/v1/sessions",
                           "/caravan/v1/memory", "/caravan/v1/cluster", "/", "/health"}) {
    const ClientAnswer answer = get(path);
    EXPECT_EQ(answer.status, 200U) << path;
    EXPECT_EQ(answer.body.find("xyzzy"), std::string::npos) << path;
  }
  EXPECT_EQ(get("/slots").body.find("s7"), std::string::npos) << "sessions are for operators";
  EXPECT_NE(get("/caravan/v1/sessions").body.find("s7"), std::string::npos);
}

TEST_F(StatusCalls, FiguresAgreeWithTheEngine) {
  serve();
  ASSERT_EQ(post("/v1/chat/completions", chat_body("Hello", R"("max_tokens":4,"ignore_eos":true)")).status, 200U);
  ASSERT_TRUE(goes_idle());
  const auto status = engine().status();
  EXPECT_EQ(metric("llamacpp:tokens_predicted_total"), 4.0);
  EXPECT_EQ(metric("llamacpp:prompt_tokens_total"), static_cast<double>(status->prompt_tokens_computed));
  EXPECT_EQ(metric("caravan_cells_total"), 2048.0);
  EXPECT_EQ(metric("caravan_cells_used"), static_cast<double>(status->cells_used));
  EXPECT_GT(metric("caravan_http_sent_bytes_total"), 0.0);
  EXPECT_GT(metric("caravan_device_bytes"), 0.0);
  EXPECT_EQ(json_of("/props").at("total_slots"), 4);
  EXPECT_EQ(json_of("/caravan/v1/cache").at("device").at("cells_total"), 2048);
  const json::value memory = json_of("/caravan/v1/memory");
  std::uint64_t weights = 0;
  for (const json::value& device : memory.at("devices").as_array())
    weights += device.at("weights_bytes").to_number<std::uint64_t>();
  EXPECT_GT(weights, 0U);
}

TEST_F(StatusCalls, AdminCallsNeedTheAdminKeyOnceThereIsOne) {
  serve({.api_keys = {{"a", "ka"}}, .admin_key = "root"});
  EXPECT_EQ(get("/caravan/v1/cache").status, 401U);
  EXPECT_EQ(get("/caravan/v1/cache", {{"Authorization", "Bearer ka"}}).status, 401U);
  EXPECT_EQ(get("/caravan/v1/cache", {{"Authorization", "Bearer root"}}).status, 200U);
  EXPECT_EQ(get("/slots", {{"x-api-key", "ka"}}).status, 200U);
  EXPECT_EQ(get("/metrics").status, 200U);
}

TEST_F(StatusCalls, SlotsAreForOperatorsWhereTenantsAreIsolated) {
  auto isolated = small_engine();
  isolated.tenant_isolation = true;
  serve({.api_keys = {{"a", "ka"}}, .admin_key = "root"}, isolated);
  EXPECT_EQ(get("/slots", {{"x-api-key", "ka"}}).status, 401U);
}

TEST_F(StatusCalls, HealthIs503WhileADecodeHangs) {
  auto impatient = small_engine();
  impatient.hang_timeout = std::chrono::microseconds(1);
  serve({}, impatient);
  TestClient client(port());
  client.send(
      request_text("POST", "/v1/chat/completions", chat_body("Hello", R"("ignore_eos":true,"stream":true)"), {}));
  EXPECT_TRUE(comes_true([this] { return get("/health").status == 503U; }));
  client.close();
  EXPECT_TRUE(comes_true([this] { return get("/health").status == 200U; }));
}

TEST_F(StatusCalls, NotesOfTheEngineAreInHealth) {
  auto off = small_engine();
  off.layout = engine::KvLayout::streams;
  serve({}, off);
  const json::value health = json_of("/health");
  EXPECT_EQ(health.at("status"), "ok");
  const auto status = engine().status();
  EXPECT_EQ(health.as_object().contains("notes"), !status->layout_note.empty() || !status->sharing_note.empty());
}

TEST(Routes, AreFoundWithAndWithoutVersion) {
  EXPECT_NE(find_route(Method::post, "/v1/chat/completions").route, nullptr);
  EXPECT_EQ(find_route(Method::post, "/v1/chat/completions").route,
            find_route(Method::post, "/chat/completions").route);
  EXPECT_NE(find_route(Method::get, "/v1/models/org/name").route, nullptr);
  EXPECT_EQ(find_route(Method::get, "/v1/health").route, nullptr);
  EXPECT_EQ(find_route(Method::get, "/v1/embeddings").allow, "POST, OPTIONS");
  EXPECT_EQ(find_route(Method::get, "").route, nullptr);
}

}  // namespace
}  // namespace caravan::http
