// The order and shape of what clients get, from events as the engine sends them.
#include "http/reply.h"

#include <string>
#include <vector>

#include <boost/json.hpp>
#include <gtest/gtest.h>

#include "http/json_text.h"

namespace caravan::http {
namespace {

namespace json = boost::json;
using engine::ChoiceEnd;
using engine::Delta;
using engine::FinishReason;
using engine::RequestEnd;
using engine::RequestFailed;

ReplyHead head(Api api = Api::chat) {
  return {.api = api, .id = "id-1", .created = 1700000000, .model = "m", .node = "n1", .session = "s1"};
}

engine::Account account() {
  engine::Account made;
  made.prompt_tokens = 100;
  made.completion_tokens = 3;
  made.cached[static_cast<std::size_t>(kv::TierKind::device)] = 64;
  made.computed = 36;
  made.miss = engine::MissReason::diverged;
  made.miss_at = 64;
  made.shared_after = 30;
  made.prefill = std::chrono::milliseconds(21);
  made.decode = std::chrono::microseconds(210300);
  return made;
}

std::vector<json::object> events_of(const std::string& text, bool* done = nullptr) {
  std::vector<json::object> events;
  std::size_t at = 0;
  while (at < text.size()) {
    const auto end = text.find("\n\n", at);
    EXPECT_NE(end, std::string::npos);
    EXPECT_EQ(text.substr(at, 6), "data: ");
    const std::string data = text.substr(at + 6, end - at - 6);
    at = end + 2;
    if (data == "[DONE]") {
      if (done != nullptr) *done = true;
      EXPECT_EQ(at, text.size()) << "[DONE] is the last event";
    } else {
      events.push_back(json::parse(data).as_object());
    }
  }
  return events;
}

const json::object& choice_of(const json::object& event) { return event.at("choices").as_array().at(0).as_object(); }

TEST(StreamReply, RoleFirstThenTextThenOneFinishWithTheAccount) {
  StreamReply reply(head(), 1, 1, {});
  std::string text = reply.compose({{0, Delta{0, "Hel", {}, 1}}});
  EXPECT_FALSE(text.empty()) << "the first text does not wait";
  text += reply.compose({{0, Delta{0, "lo", {}, 1}}, {0, ChoiceEnd{0, FinishReason::stop, {}, 3}}});
  EXPECT_FALSE(reply.done());
  text += reply.compose({{0, RequestEnd{account()}}});
  EXPECT_TRUE(reply.done());
  bool done = false;
  const auto events = events_of(text, &done);
  EXPECT_TRUE(done);
  ASSERT_EQ(events.size(), 3U);
  for (const auto& event : events) {
    EXPECT_EQ(event.at("id"), "id-1");
    EXPECT_EQ(event.at("created"), 1700000000);
    EXPECT_EQ(event.at("model"), "m");
    EXPECT_EQ(event.at("object"), "chat.completion.chunk");
    EXPECT_FALSE(event.contains("usage"));
  }
  EXPECT_EQ(to_text(choice_of(events[0]).at("delta")), R"({"role":"assistant","content":"Hel"})");
  EXPECT_TRUE(choice_of(events[0]).at("finish_reason").is_null());
  EXPECT_EQ(to_text(choice_of(events[1]).at("delta")), R"({"content":"lo"})");
  EXPECT_FALSE(events[1].contains("caravan"));
  EXPECT_EQ(choice_of(events[2]).at("finish_reason"), "stop");
  EXPECT_EQ(to_text(choice_of(events[2]).at("delta")), "{}");
  EXPECT_EQ(
      to_text(events[2].at("caravan")),
      R"({"node":"n1","session":"s1","cached":{"device":64,"host":0,"store":0,"peer":0,"remote":0},"computed":36,)"
      R"("miss":{"reason":"diverged","at":64,"shared_after":30},)"
      R"("ms":{"queue":0,"match":0,"restore":0,"prefill":21,"decode":210.3}})");
}

TEST(StreamReply, UsageComesLastWithoutChoicesWhenAskedFor) {
  ReplyHead with_usage = head();
  with_usage.usage_chunk = true;
  StreamReply reply(with_usage, 1, 1, {});
  const auto events = events_of(reply.compose(
      {{0, Delta{0, "x", {}, 1}}, {0, ChoiceEnd{0, FinishReason::length, {}, 1}}, {0, RequestEnd{account()}}}));
  ASSERT_EQ(events.size(), 3U);
  EXPECT_TRUE(events[0].at("usage").is_null());
  EXPECT_TRUE(events[1].at("usage").is_null());
  EXPECT_EQ(choice_of(events[1]).at("finish_reason"), "length");
  EXPECT_TRUE(events[2].at("choices").as_array().empty());
  EXPECT_EQ(
      to_text(events[2].at("usage")),
      R"({"prompt_tokens":100,"completion_tokens":3,"total_tokens":103,"prompt_tokens_details":{"cached_tokens":64}})");
}

TEST(StreamReply, SeveralPromptsAndChoicesKeepTheirIndex) {
  StreamReply reply(head(Api::completions), 2, 2, {"P", "Q"});
  std::vector<Mail> mails;
  for (std::uint32_t prompt = 0; prompt < 2; ++prompt)
    for (std::uint32_t choice = 0; choice < 2; ++choice) {
      mails.push_back({prompt, Delta{choice, "x", {}, 1}});
      mails.push_back({prompt, ChoiceEnd{choice, FinishReason::stop, {}, 1}});
    }
  mails.push_back({0, RequestEnd{account()}});
  mails.push_back({1, RequestEnd{account()}});
  const auto events = events_of(reply.compose(std::move(mails)));
  ASSERT_EQ(events.size(), 8U);
  std::vector<int> texts(4);
  std::vector<int> ends(4);
  int accounts = 0;
  for (const auto& event : events) {
    const auto index = static_cast<std::size_t>(choice_of(event).at("index").as_int64());
    if (choice_of(event).at("finish_reason").is_null()) {
      EXPECT_EQ(choice_of(event).at("text"), index < 2 ? "Px" : "Qx");
      ++texts[index];
    } else {
      ++ends[index];
    }
    accounts += event.contains("caravan") ? 1 : 0;
  }
  EXPECT_EQ(texts, std::vector<int>(4, 1));
  EXPECT_EQ(ends, std::vector<int>(4, 1));
  EXPECT_EQ(accounts, 1);
  EXPECT_TRUE(events.back().contains("caravan"));
  EXPECT_EQ(events.back().at("caravan").at("computed"), 72);
}

TEST(StreamReply, AFailureIsAnErrorEventAndNeverAStop) {
  StreamReply reply(head(), 1, 1, {});
  std::string text = reply.compose({{0, Delta{0, "x", {}, 1}}});
  text += reply.compose({{0, RequestFailed{{ErrorCode::internal, "decode failed"}}}});
  EXPECT_TRUE(reply.done());
  bool done = false;
  const auto events = events_of(text, &done);
  EXPECT_FALSE(done);
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1].at("error").at("message"), "decode failed");
  EXPECT_EQ(text.find("\"stop\""), std::string::npos);
}

TEST(StreamReply, AnEmptyAnswerStillHasItsRole) {
  StreamReply reply(head(), 1, 1, {});
  const auto events =
      events_of(reply.compose({{0, ChoiceEnd{0, FinishReason::stop, {}, 1}}, {0, RequestEnd{account()}}}));
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(to_text(choice_of(events[0]).at("delta")), R"({"role":"assistant","content":""})");
}

engine::TokenLogprob logprob(std::string bytes, float value) {
  return {.chosen = {1, bytes, value}, .top = {{1, bytes, value}, {2, "z", value - 1}}};
}

TEST(Logprobs, ChatShapeHasBytesOfPartialCharacters) {
  ReplyHead with = head();
  with.logprobs = true;
  BodyReply reply(with, 1, 1, {});
  reply.add({{0, Delta{0, "", {logprob("\xe4\xb8", -0.5F)}, 1}},
             {0, Delta{0, "中", {logprob("\xad", -0.25F)}, 1}},
             {0, ChoiceEnd{0, FinishReason::stop, {}, 2}},
             {0, RequestEnd{account()}}});
  ASSERT_TRUE(reply.done());
  const json::object body = json::parse(reply.body()).as_object();
  EXPECT_EQ(body.at("object"), "chat.completion");
  EXPECT_EQ(choice_of(body).at("message").at("content"), "中");
  const json::array& content = choice_of(body).at("logprobs").at("content").as_array();
  ASSERT_EQ(content.size(), 2U);
  EXPECT_EQ(to_text(content[0].at("bytes")), "[228,184]");
  EXPECT_EQ(to_text(content[1].at("logprob")), "-0.25");
  EXPECT_EQ(content[1].at("top_logprobs").as_array().size(), 2U);
  EXPECT_TRUE(body.at("timings").at("prompt_per_second").is_number());
}

TEST(Logprobs, CompletionsShapeHasOffsets) {
  ReplyHead with = head(Api::completions);
  with.logprobs = true;
  StreamReply reply(with, 1, 1, {});
  const auto events = events_of(reply.compose({{0, Delta{0, "ab", {logprob("ab", -0.5F)}, 1}},
                                               {0, Delta{0, "c", {logprob("c", -0.5F)}, 1}},
                                               {0, ChoiceEnd{0, FinishReason::stop, {}, 2}},
                                               {0, RequestEnd{account()}}}));
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(to_text(choice_of(events[1]).at("logprobs")),
            R"({"tokens":["c"],"token_logprobs":[-0.5],"top_logprobs":[{"c":-0.5,"z":-1.5}],"text_offset":[2]})");
}

TEST(Embeddings, Base64HoldsTheSameFloats) {
  const std::vector<engine::Embedding> one = {{{1.0F, -2.5F}}};
  EXPECT_EQ(render_embeddings("m", one, EmbeddingCall::Encoding::floats, 3),
            R"({"object":"list","data":[{"object":"embedding","index":0,"embedding":[1,-2.5]}],"model":"m",)"
            R"("usage":{"prompt_tokens":3,"total_tokens":3}})");
  EXPECT_NE(render_embeddings("m", one, EmbeddingCall::Encoding::base64, 3).find(R"("embedding":"AACAPwAAIMA=")"),
            std::string::npos);
}

TEST(JsonText, WritesNumbersAsPeopleDoAndEscapesStrings) {
  EXPECT_EQ(to_text(json::value{0.4, 210.3, 1e30, -7, std::uint64_t{1} << 63U, nullptr, true}),
            "[0.4,210.3,1e+30,-7,9223372036854775808,null,true]");
  EXPECT_EQ(to_text(json::value("a\"\\\n\x01中")), "\"a\\\"\\\\\\n\\u0001中\"");
  EXPECT_EQ(valid_utf8("a\xff中\xe4\xb8"), "a\xEF\xBF\xBD中\xEF\xBF\xBD\xEF\xBF\xBD");
}

}  // namespace
}  // namespace caravan::http
