#include "engine/grammar_check.h"

#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <llama.h>
#include <rapidcheck.h>

#include "base/check.h"
#include "engine/backends.h"
#include "engine/model.h"

namespace caravan::engine {
namespace {

const Model& demo() {
  static const std::unique_ptr<Model> model = [] {
    auto loaded = Model::load({.path = CARAVAN_SOURCE_DIR "/models/demo/desk-2.8m-q8_0.gguf"});
    CHECK(loaded.has_value());
    return std::move(*loaded);
  }();
  return *model;
}

Status check(std::string_view grammar) {
  return check_grammar(grammar, [](std::string_view text) {
    const auto tokens = demo().tokenize(text, AddSpecial::no, ParseSpecial::yes);
    return tokens && tokens->size() == 1;
  });
}

// Whether libllama takes it; only for grammars that have been checked.
bool libllama_takes(const std::string& grammar) {
  const ComplaintRecorder quiet;
  llama_sampler* sampler = llama_sampler_init_grammar(demo().vocabulary(), grammar.c_str(), "root");
  if (sampler != nullptr) llama_sampler_free(sampler);
  return sampler != nullptr;
}

std::string refusal(std::string_view grammar) {
  const Status status = check(grammar);
  return status ? "" : status.error().message;
}

TEST(GrammarCheck, TakesWhatLibllamaTakes) {
  for (const std::string grammar : {
           "root ::= \"yes\" | \"no\"",
           "# a comment\nroot ::= item (\",\" item)* # behind\nitem ::= [a-z]+ | \"\\\"\" [^\"\\x00-\\x1F]{0,5} "
           "\"\\\"\"\n",
           "root ::= (\n  \"a\"\n  | \"b\" # inside\n)\n\n\nother ::= root",
           "root ::= [\\u00e9\\U0001F600退-送-] .? \"\\n\\t\\r\\\\\\[\\]\"",
           "root ::= ws* \"x\"\nws ::= \" \"?",  // a repetition of what may be empty ends, though it looks
                                                 // left-recursive
           "root ::= ((\"a\"? \"b\"?)* \"c\")*",
           "root ::= \"a\" root | \"\"",
           "root ::= \"a\"{3} \"b\"{2,} \"c\"{0,4} \"d\"{1,1} \"e\"{0,0} \"f\"",
           "root ::= <[5]> !<[6]> <|im_end|>",
           "root ::= \"a\"\r\nb ::= \"b\"\r\n",
       }) {
    EXPECT_EQ(refusal(grammar), "") << grammar;
    EXPECT_TRUE(libllama_takes(grammar)) << grammar;
  }
}

TEST(GrammarCheck, SaysWhereItIsWrong) {
  using testing::HasSubstr;
  EXPECT_THAT(refusal("root ::= \"a"), HasSubstr("line 1: a \" is not closed"));
  EXPECT_THAT(refusal("root ::= x\nx ::= [a"), HasSubstr("line 2: a [ is not closed"));
  EXPECT_THAT(refusal("root ::= (\"a\""), HasSubstr("a ( is not closed"));
  EXPECT_THAT(refusal("root ::= \"a\")"), HasSubstr("`)` is unexpected"));
  EXPECT_THAT(refusal("root = \"a\""), HasSubstr("::= is expected after `root`"));
  EXPECT_THAT(refusal("root ::= x y\nx ::= \"1\""), HasSubstr("no rule `y`"));
  EXPECT_THAT(refusal("start ::= \"a\""), HasSubstr("no rule `root`"));
  EXPECT_THAT(refusal(""), HasSubstr("no rule `root`"));
  EXPECT_THAT(refusal("root ::= \"\\q\""), HasSubstr("escape"));
  EXPECT_THAT(refusal("root ::= \"\\u12\""), HasSubstr("hexadecimal"));
  EXPECT_THAT(refusal("root ::= <nothing such>"), HasSubstr("no token of this model"));
  EXPECT_THAT(refusal("root ::= <[12a]>"), HasSubstr("<[number]>"));
  EXPECT_THAT(refusal("root ::= <["), HasSubstr("not closed"));
  EXPECT_THAT(refusal("root ::= <[>"), HasSubstr("<[number]>"));
  EXPECT_THAT(refusal("root ::= *"), HasSubstr("nothing before it"));
  EXPECT_THAT(refusal("root ::= é"), HasSubstr("`é` is unexpected"));
  EXPECT_THAT(refusal("root ::= \"\xFF\""), HasSubstr("UTF-8"));
  EXPECT_THAT(refusal(std::string("root ::= \"\0\"", 12)), HasSubstr("NUL"));
  for (const std::string_view grammar : {"root ::= \"a", "root ::= \"a\nb\nc\" }", "", "root ::= \"\\"}) {
    EXPECT_EQ(refusal(grammar).find('\n'), std::string::npos) << grammar;
  }
}

// Each of these ends the process, or never comes back, when libllama is given it.
TEST(GrammarCheck, HostileGrammarsAreRefusedAtOnce) {
  std::string doubling;
  for (int i = 0; i < 60; ++i) doubling += fmt::format("r{} ::= r{} | r{}\n", i, i + 1, i + 1);
  std::string chain = "root ::= r0\n";
  for (int i = 0; i < 21000; ++i) chain += fmt::format("r{} ::= r{}\n", i, i + 1);
  const std::vector<std::string> hostile = {
      "root ::= \"a\"{5,2}",
      "root ::= \"a\"{99999999999999999999}",
      "root ::= root \"a\" | \"b\"",
      "root ::= a\na ::= b \"x\"\nb ::= a \"y\" | \"z\"",
      "root ::= e root \"x\" | \"y\"\ne ::= d\nd ::= c\nc ::= \"\"",
      "root ::= \"" + std::string(200'000, 'a') + "\"{2000}",
      "root ::= " + std::string(100'000, '(') + "\"a\"" + std::string(100'000, ')'),
      "root ::= r0\n" + doubling + "r60 ::= \"a\"",
      chain + "r21000 ::= \"a\"",
      "root ::= \"" + std::string(300'000, 'a') + "\"",
      [] {
        std::string many = "root ::= ";
        for (int i = 0; i < 20'000; ++i) many += "\"a\"{0,2000} ";
        return many;
      }(),
  };
  for (const std::string& grammar : hostile) {
    const auto begun = std::chrono::steady_clock::now();
    const std::string reason = refusal(grammar);
    EXPECT_NE(reason, "") << grammar.substr(0, 100);
    EXPECT_LT(reason.size(), 300U);
    EXPECT_LT(std::chrono::steady_clock::now() - begun, std::chrono::seconds(2)) << grammar.substr(0, 100);
  }
}

TEST(GrammarCheck, LargeButHonestGrammarsPass) {
  std::string list = "root ::= item (\",\" item){0,1999}\nitem ::= \"[\" char{0,500} \"]\"\nchar ::= [^\\x00-\\x1F]\n";
  for (int i = 0; i < 3000; ++i) list += fmt::format("r{} ::= \"a{}\" | \"b\" r{}\n", i, i, i == 0 ? 0 : i - 1);
  EXPECT_EQ(refusal(list), "");
  EXPECT_TRUE(libllama_takes(list));
}

TEST(GrammarCheck, WhatPassesIsTakenByLibllama) {
  EXPECT_TRUE(rc::check("each grammar that passed is taken", [] {
    const auto piece = rc::gen::element<std::string>("root ::= ", "\n", "a ::= ", "b ::= ", "\"x\"", "\"\"", "[a-z]",
                                                     "(", ")", "|", "*", "?", "+", "{2,3}", "{0,2}", "{3,2}", " a ",
                                                     " b ", " root ", "#c", "\\", "\"");
    for (int i = 0; i < 50; ++i) {
      std::string grammar = "root ::= ";
      for (const std::string& each : *rc::gen::container<std::vector<std::string>>(piece)) grammar += each;
      if (check(grammar)) RC_ASSERT(libllama_takes(grammar));
    }
  }));
}

}  // namespace
}  // namespace caravan::engine
