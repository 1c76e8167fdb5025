// What clients send, well-meant or not: everything is either understood or refused with status 400.
#include <cmath>
#include <string>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "http/openai.h"

namespace caravan::http {
namespace {

std::string chat_with(const std::string& fields) {
  return R"({"messages":[{"role":"user","content":"hi"}])" + (fields.empty() ? "" : "," + fields) + "}";
}

CompletionCall parsed(const std::string& body) {
  auto call = parse_chat(body, {});
  EXPECT_TRUE(call.has_value()) << body << "\n" << (call ? "" : call.error().message);
  return call ? *call : CompletionCall{};
}

ApiError refused(const std::string& body) {
  const auto call = parse_chat(body, {});
  EXPECT_FALSE(call.has_value()) << body;
  if (call) return {};
  EXPECT_EQ(call.error().status, 400U) << body;
  return call.error();
}

TEST(ParseChat, DefaultsAreLlamaServers) {
  const CompletionCall call = parsed(chat_with(""));
  ASSERT_EQ(call.messages.size(), 1U);
  EXPECT_EQ(call.messages[0].role, "user");
  EXPECT_EQ(call.messages[0].content, "hi");
  EXPECT_FLOAT_EQ(call.request.sampling.temperature, 0.8F);
  EXPECT_FALSE(call.request.max_tokens);
  EXPECT_FALSE(call.request.top_logprobs);
  EXPECT_TRUE(call.request.cache_prompt);
  EXPECT_EQ(call.request.choices, 1U);
  EXPECT_FALSE(call.stream);
}

TEST(ParseChat, ContentComesAsTextPartsOrNull) {
  const CompletionCall call =
      parsed(R"({"messages":[{"role":"developer","content":"a"},{"role":"user","content":[{"type":"text","text":"b"},)"
             R"({"type":"text","text":"c"}]},{"role":"assistant","content":null},{"role":"assistant","content":""}]})");
  ASSERT_EQ(call.messages.size(), 4U);
  EXPECT_EQ(call.messages[0].role, "system");
  EXPECT_EQ(call.messages[1].content, "b\nc");
  EXPECT_EQ(call.messages[2].content, "");
}

TEST(ParseChat, MessagesThatAreNotOnesAreNamed) {
  for (const char* messages :
       {"null", "[]", "{}", "\"hi\"", "[1]", "[{}]", R"([{"role":"user"}])", R"([{"role":"user","content":null}])",
        R"([{"role":"user","content":3}])", R"([{"role":"wizard","content":"x"}])",
        R"([{"role":"tool","content":"x"}])", R"([{"role":7,"content":"x"}])",
        R"([{"role":"user","content":[{"type":"image_url"}]}])", R"([{"role":"user","content":[{"type":"text"}]}])",
        R"([{"role":"user","content":[1]}])", R"([{"role":"user","content":"a\u0000b"}])",
        R"([{"role":"assistant","content":"","tool_calls":[{}]}])"})
    EXPECT_TRUE(refused(std::string(R"({"messages":)") + messages + "}").param.starts_with("messages")) << messages;
}

TEST(ParseChat, TextThatIsNotUnicodeIsRefused) {
  for (const char* text : {R"("\ud800")", R"("\udc00x")", R"("\ud800\ud800")", "\"\xff\"", "\"\xc0\xaf\"",
                           "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"", "\"\xe2\x82\""})
    refused(std::string(R"({"messages":[{"role":"user","content":)") + text + "}]}");
  parsed(R"({"messages":[{"role":"user","content":"\ud83d\ude00 😀 中文"}]})");
}

TEST(ParseChat, BodiesThatAreNotJsonObjectsAreRefused) {
  for (const char* body : {"", " ", "null", "[]", "3", "{", "{}x", "{\"messages\":", "nul", "{\"a\":1e999999}"})
    refused(body);
  refused(std::string(100000, '['));
  std::string deep = R"({"messages":[{"role":"user","content":"x"}],"ignored":)";
  for (int i = 0; i < 5000; ++i) deep += R"({"a":)";
  refused(deep);
}

TEST(ParseChat, MaxTokensIsBoundedOrRefused) {
  EXPECT_EQ(parsed(chat_with(R"("max_tokens":16)")).request.max_tokens, 16U);
  EXPECT_EQ(parsed(chat_with(R"("max_completion_tokens":5,"max_tokens":16)")).request.max_tokens, 5U);
  EXPECT_EQ(parsed(chat_with(R"("n_predict":7)")).request.max_tokens, 7U);
  EXPECT_EQ(parsed(chat_with(R"("max_tokens":1e9)")).request.max_tokens, 1000000000U);
  EXPECT_EQ(parsed(chat_with(R"("max_tokens":2147483648)")).request.max_tokens, 2147483647U);
  EXPECT_EQ(parsed(chat_with(R"("max_tokens":18446744073709551615)")).request.max_tokens, 2147483647U);
  EXPECT_FALSE(parsed(chat_with(R"("max_tokens":-1)")).request.max_tokens);
  EXPECT_FALSE(parsed(chat_with(R"("max_tokens":null)")).request.max_tokens);
  for (const char* value : {"0", "-2", "1.5", "\"10\"", "true", "[]", "{}", "1e300", "-9223372036854775808"})
    EXPECT_EQ(refused(chat_with(std::string(R"("max_tokens":)") + value)).param, "max_tokens") << value;
}

TEST(ParseChat, StopIsAStringOrAList) {
  EXPECT_EQ(parsed(chat_with(R"("stop":"x")")).request.stop, std::vector<std::string>{"x"});
  EXPECT_EQ(parsed(chat_with(R"("stop":["x","","yz"])")).request.stop, (std::vector<std::string>{"x", "yz"}));
  EXPECT_TRUE(parsed(chat_with(R"("stop":null)")).request.stop.empty());
  refused(chat_with(R"("stop":[1])"));
  refused(chat_with(R"("stop":{})"));
  refused(chat_with(R"("stop":"\u0000")"));
  refused(chat_with(R"("stop":")" + std::string(2000, 'x') + "\""));
}

TEST(ParseChat, FieldsOfTheWrongKindAreNamed) {
  for (const char* field : {"temperature",
                            "top_p",
                            "top_k",
                            "min_p",
                            "typical_p",
                            "repeat_penalty",
                            "repeat_last_n",
                            "presence_penalty",
                            "frequency_penalty",
                            "mirostat",
                            "mirostat_tau",
                            "mirostat_eta",
                            "seed",
                            "n",
                            "stream",
                            "cache_prompt",
                            "id_slot",
                            "ignore_eos",
                            "logprobs",
                            "top_logprobs",
                            "grammar",
                            "response_format",
                            "logit_bias",
                            "stream_options",
                            "user",
                            "prompt_cache_key",
                            "model"}) {
    const std::string wrong = std::string(field) == "logit_bias" ? "7" : R"([["x"]])";
    EXPECT_EQ(refused(chat_with("\"" + std::string(field) + "\":" + wrong)).param, field);
    parsed(chat_with("\"" + std::string(field) + "\":null"));
  }
  parsed(chat_with(R"("no_such_field":{"a":[1,2,3]},"store":true,"metadata":{"a":"b"})"));
}

TEST(ParseChat, LogprobsNeedToBeAskedFor) {
  EXPECT_EQ(parsed(chat_with(R"("logprobs":true)")).request.top_logprobs, 0U);
  EXPECT_EQ(parsed(chat_with(R"("logprobs":true,"top_logprobs":3)")).request.top_logprobs, 3U);
  EXPECT_EQ(refused(chat_with(R"("top_logprobs":3)")).param, "top_logprobs");
  EXPECT_EQ(refused(chat_with(R"("logprobs":true,"top_logprobs":21)")).param, "top_logprobs");
}

TEST(ParseChat, LogitBiasTakesTokensAndTexts) {
  const CompletionCall call = parsed(chat_with(R"("logit_bias":{"15":-100,"hello":2.5})"));
  ASSERT_EQ(call.request.sampling.logit_bias.size(), 1U);
  EXPECT_EQ(call.request.sampling.logit_bias[0], std::pair(15, -100.0F));
  ASSERT_EQ(call.logit_bias_texts.size(), 1U);
  EXPECT_EQ(call.logit_bias_texts[0], std::pair(std::string("hello"), 2.5F));
  const CompletionCall list = parsed(chat_with(R"("logit_bias":[[15,false],["hello",1]])"));
  ASSERT_EQ(list.request.sampling.logit_bias.size(), 1U);
  EXPECT_TRUE(std::isinf(list.request.sampling.logit_bias[0].second));
  for (const char* bias : {R"({"15":"x"})", R"({"15":true})", R"([15,1])", R"([[15]])", R"([[{},1]])", R"({"":1})"})
    EXPECT_EQ(refused(chat_with(std::string(R"("logit_bias":)") + bias)).param, "logit_bias") << bias;
}

TEST(ParseChat, SeedAndSession) {
  EXPECT_EQ(parsed(chat_with(R"("seed":42)")).request.sampling.seed, 42U);
  EXPECT_FALSE(parsed(chat_with(R"("seed":-1)")).request.sampling.seed);
  EXPECT_EQ(parsed(chat_with(R"("user":"u","prompt_cache_key":"k")")).request.session, "k");
  EXPECT_EQ(parsed(chat_with(R"("user":"u")")).request.session, "u");
  refused(chat_with(R"("user":")" + std::string(300, 'u') + "\""));
}

TEST(ParseChat, ToolsAreRefusedUnlessEmpty) {
  parsed(chat_with(R"("tools":[],"tool_choice":"auto","parallel_tool_calls":true)"));
  EXPECT_EQ(refused(chat_with(R"("tools":[{"type":"function"}])")).param, "tools");
  EXPECT_EQ(refused(chat_with(R"("functions":[{}])")).param, "functions");
  EXPECT_EQ(refused(chat_with(R"("modalities":["audio"])")).param, "modalities");
}

TEST(ParseChat, ShapeOfTheOutput) {
  EXPECT_TRUE(parsed(chat_with(R"("response_format":{"type":"text"})")).request.sampling.grammar.empty());
  EXPECT_FALSE(parsed(chat_with(R"("response_format":{"type":"json_object"})")).request.sampling.grammar.empty());
  EXPECT_FALSE(parsed(chat_with(R"("response_format":{"type":"json_schema","json_schema":{"name":"x","schema":)"
                                R"({"type":"object","properties":{"a":{"type":"integer"}}}}})"))
                   .request.sampling.grammar.empty());
  EXPECT_FALSE(parsed(chat_with(R"("json_schema":{"type":"string"})")).request.sampling.grammar.empty());
  EXPECT_EQ(parsed(chat_with(R"("grammar":"root ::= \"x\"")")).request.sampling.grammar, "root ::= \"x\"");
  for (const char* fields :
       {R"("response_format":{})", R"("response_format":{"type":"yaml"})", R"("response_format":"json")",
        R"("response_format":{"type":"json_schema"})", R"("response_format":{"type":"json_schema","json_schema":{}})",
        R"("response_format":{"type":"json_object"},"grammar":"root ::= \"x\"")",
        R"("response_format":{"type":"json_object"},"json_schema":{"type":"string"})", R"("json_schema":7)"})
    refused(chat_with(fields));
}

TEST(ParseChat, StreamOptions) {
  const CompletionCall call = parsed(chat_with(R"("stream":true,"stream_options":{"include_usage":true})"));
  EXPECT_TRUE(call.stream);
  EXPECT_TRUE(call.include_usage);
  EXPECT_FALSE(parsed(chat_with(R"("stream_options":{"include_usage":true})")).include_usage);
  EXPECT_EQ(refused(chat_with(R"("stream_options":{"include_usage":1})")).param, "stream_options.include_usage");
}

TEST(ParseCompletion, PromptsAreTextsOrTokens) {
  const auto prompts = [](const std::string& prompt) {
    const auto call = parse_completion(R"({"prompt":)" + prompt + "}", {});
    EXPECT_TRUE(call.has_value()) << prompt;
    return call ? call->prompts : std::vector<PromptInput>{};
  };
  EXPECT_EQ(prompts(R"("a")"), std::vector<PromptInput>{std::string("a")});
  EXPECT_EQ(prompts(R"(["a","b"])"), (std::vector<PromptInput>{std::string("a"), std::string("b")}));
  EXPECT_EQ(prompts("[1,2]"), (std::vector<PromptInput>{std::vector<engine::Token>{1, 2}}));
  EXPECT_EQ(prompts("[[1],[2,3]]"),
            (std::vector<PromptInput>{std::vector<engine::Token>{1}, std::vector<engine::Token>{2, 3}}));
  for (const char* prompt :
       {"null", "[]", "{}", "7", "[[]]", "[1,\"a\"]", "[-1]", "[1.5]", "[2147483648]", "[null]", "\"\\u0000\""}) {
    const auto call = parse_completion(std::string(R"({"prompt":)") + prompt + "}", {});
    ASSERT_FALSE(call.has_value()) << prompt;
    EXPECT_EQ(call.error().param, "prompt");
  }
}

TEST(ParseCompletion, LegacyFields) {
  const auto parse_with = [](const std::string& fields) {
    return parse_completion(R"({"prompt":"a",)" + fields + "}", {});
  };
  EXPECT_EQ(parse_with(R"("logprobs":2)")->request.top_logprobs, 2U);
  EXPECT_FALSE(parse_with(R"("logprobs":null)")->request.top_logprobs);
  EXPECT_TRUE(parse_with(R"("echo":true)")->echo);
  EXPECT_FALSE(parse_with(R"("echo":true,"logprobs":1)"));
  EXPECT_FALSE(parse_with(R"("suffix":"x")"));
  EXPECT_TRUE(parse_with(R"("suffix":"")"));
  EXPECT_FALSE(parse_with(R"("best_of":3)"));
  EXPECT_TRUE(parse_with(R"("best_of":3,"n":3)"));
  EXPECT_FALSE(parse_with(R"("logprobs":true)"));
  const auto many = parse_completion(R"({"prompt":["a","b","c"],"n":3})", {.choices_max = 8});
  ASSERT_FALSE(many);
  EXPECT_EQ(many.error().param, "n");
}

TEST(ParseEmbedding, InputsAndEncoding) {
  EXPECT_EQ(parse_embedding(R"({"input":"a","encoding_format":"base64"})", {})->encoding,
            EmbeddingCall::Encoding::base64);
  EXPECT_EQ(parse_embedding(R"({"input":["a","b"]})", {})->inputs.size(), 2U);
  EXPECT_FALSE(parse_embedding(R"({"input":["a","b"]})", {.inputs_max = 1}));
  EXPECT_FALSE(parse_embedding(R"({"input":"a","encoding_format":"int8"})", {}));
  EXPECT_FALSE(parse_embedding(R"({"input":[]})", {}));
  EXPECT_FALSE(parse_embedding("{}", {}));
}

// Whatever comes, the parsers return; what they refuse has status 400 and one line of valid text.
void survives(const std::string& body) {
  const auto check = [](const auto& result) {
    if (result) return;
    RC_ASSERT(result.error().status == 400U);
    RC_ASSERT(!result.error().message.empty());
    RC_ASSERT(error_body(result.error()).find('\n') == std::string::npos);
  };
  check(parse_chat(body, {}));
  check(parse_completion(body, {}));
  check(parse_embedding(body, {}));
}

rc::Gen<std::string> hostile_value() {
  return rc::gen::element<std::string>(
      "null", "true", "false", "0", "-1", "1", "1.5", "1e9", "1e308", "-0", "2147483648", "18446744073709551615",
      "\"\"", "\"10\"", "\"\\u0000\"", "\"\\ud800\"", "[]", "{}", "[null]", "[[]]", "[{}]", "[1]", "[\"a\"]",
      "{\"type\":\"json_schema\"}", "{\"type\":\"json_object\",\"schema\":{\"$ref\":\"#\"}}",
      "[{\"role\":\"user\",\"content\":\"x\"}]", "{\"5\":1}", "[[5,1]]", "\"\xff\"", "{\"include_usage\":{}}");
}

RC_GTEST_PROP(ParseHostile, SurvivesAnyFieldWithAnyValue, ()) {
  const auto fields = *rc::gen::container<std::vector<std::pair<std::string, std::string>>>(
      rc::gen::pair(rc::gen::element<std::string>("messages", "prompt", "input", "max_tokens", "n", "stop", "stream",
                                                  "stream_options", "logprobs", "top_logprobs", "logit_bias",
                                                  "response_format", "json_schema", "grammar", "temperature", "seed",
                                                  "user", "tools", "echo", "best_of", "encoding_format", "x"),
                    hostile_value()));
  std::string body = "{";
  for (const auto& [name, value] : fields) body += fmt::format("{}\"{}\":{}", body.size() > 1 ? "," : "", name, value);
  survives(body + "}");
}

RC_GTEST_PROP(ParseHostile, SurvivesAnyBytes, (const std::string& bytes)) { survives(bytes); }

}  // namespace
}  // namespace caravan::http
