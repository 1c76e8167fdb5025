#include "engine/model.h"

#include <gtest/gtest.h>

#include "base/temp_directory.h"

namespace caravan::engine {
namespace {

std::filesystem::path demo_path() { return CARAVAN_SOURCE_DIR "/models/demo/desk-2.8m-q8_0.gguf"; }

TEST(Model, LoadsTheDemoModelAndKnowsItsFacts) {
  const auto model = Model::load({.path = demo_path()});
  ASSERT_TRUE(model) << model.error().message;
  const ModelInfo& info = (*model)->info();
  EXPECT_EQ(info.architecture, "llama");
  EXPECT_EQ(info.context_train, 4096U);
  EXPECT_EQ(info.vocabulary, 2048U);
  EXPECT_TRUE(info.decoder);
  EXPECT_FALSE(info.recurrent);
  EXPECT_FALSE(info.chat_template.empty());
}

TEST(Model, TokenizesAndDetokenizesWhatItRead) {
  const auto model = Model::load({.path = demo_path()});
  ASSERT_TRUE(model) << model.error().message;
  for (const std::string text : {"Items can be returned within 42 days.", "退款需要17个工作日。", "", "a\nb\t c"}) {
    const auto tokens = (*model)->tokenize(text, AddSpecial::no, ParseSpecial::no);
    ASSERT_TRUE(tokens) << tokens.error().message;
    EXPECT_EQ((*model)->detokenize(*tokens, ParseSpecial::yes), text);
    std::string pieces;
    for (const Token token : *tokens) pieces += (*model)->piece(token, ParseSpecial::yes);
    EXPECT_EQ(pieces, text);
  }
}

TEST(Model, ControlTextIsATokenOnlyWhenAsked) {
  const auto model = Model::load({.path = demo_path()});
  ASSERT_TRUE(model) << model.error().message;
  const auto parsed = (*model)->tokenize("<|im_end|>", AddSpecial::no, ParseSpecial::yes);
  const auto plain = (*model)->tokenize("<|im_end|>", AddSpecial::no, ParseSpecial::no);
  ASSERT_TRUE(parsed && plain);
  EXPECT_EQ(parsed->size(), 1U);
  EXPECT_GT(plain->size(), 1U);
  EXPECT_TRUE((*model)->ends_generation(parsed->front()));
}

TEST(Model, AFileThatIsNoModelIsOneClearLine) {
  const auto missing = Model::load({.path = "/nonexistent/model.gguf"});
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  EXPECT_NE(missing.error().message.find("/nonexistent/model.gguf"), std::string::npos);

  const TempDirectory folder;
  const auto path = folder.write("not_a_model.gguf", "this is text, not a model");
  const auto wrong = Model::load({.path = path});
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().message.find('\n'), std::string::npos);
  EXPECT_NE(wrong.error().message.find(path.string()), std::string::npos);
}

}  // namespace
}  // namespace caravan::engine
