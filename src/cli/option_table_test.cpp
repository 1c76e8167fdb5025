#include "cli/option_table.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "base/temp_directory.h"

namespace caravan::cli {
namespace {

enum class Colour { red, green };

struct Paint {
  std::uint32_t coats = 2;
  std::uint64_t bucket = 1ULL << 20;
  bool primer = true;
  std::string brand;
  std::vector<std::string> helpers;
  Colour colour = Colour::red;
  std::string surface;
};

class OptionTableTest : public ::testing::Test {
 public:
  OptionTableTest()
      : table_({.name = "paint", .summary = "Paint a wall.", .examples = {{"caravan paint wall", "it"}}}) {
    table_.group("Paint");
    table_.add({.name = "coats",
                .aliases = {"-c", "-nco", "--layers"},
                .binding = integer(paint_.coats, 1, 9),
                .help = "coats"});
    table_.add({.name = "bucket", .binding = bytes(paint_.bucket, 1024), .help = "size of a bucket"});
    table_.add({.name = "primer", .binding = switched(paint_.primer), .help = "a primer first"});
    table_.add({.name = "brand", .binding = text(paint_.brand, "NAME"), .help = "who made it"});
    table_.add({.name = "helpers", .binding = texts(paint_.helpers, "NAME"), .help = "who helps"});
    table_.add({.name = "colour",
                .binding = choice(paint_.colour, {{"red", Colour::red}, {"green", Colour::green}}),
                .help = "colour"});
    table_.add(Positional{.name = "SURFACE", .binding = text(paint_.surface, "what to paint"), .required = false});
    table_.allow_config_file();
  }

  std::string file(const std::string& text) { return directory_.write("paint.toml", text).string(); }
  std::string error(const std::vector<std::string>& arguments, const Environment& environment = {}) {
    const auto wanted = table_.read(arguments, environment);
    return wanted ? "" : wanted.error().message;
  }
  bool answered(const std::vector<std::string>& arguments) {
    const auto wanted = table_.read(arguments, {});
    return wanted || !wanted.error().message.empty();
  }
  void read(const std::vector<std::string>& arguments, const Environment& environment = {}) {
    EXPECT_EQ(error(arguments, environment), "");
  }

  Paint paint_;
  OptionTable table_;
  TempDirectory directory_;
};

TEST_F(OptionTableTest, NothingGivenLeavesDefaults) {
  read({});
  EXPECT_EQ(paint_.coats, 2U);
  EXPECT_TRUE(paint_.primer);
}

TEST_F(OptionTableTest, FlagsTakeValuesInEverySpelling) {
  read({"--coats", "3", "--bucket=2G", "--no-primer", "wall", "--colour", "green"});
  EXPECT_EQ(paint_.coats, 3U);
  EXPECT_EQ(paint_.bucket, 2ULL << 30);
  EXPECT_FALSE(paint_.primer);
  EXPECT_EQ(paint_.surface, "wall");
  EXPECT_EQ(paint_.colour, Colour::green);
  read({"-nco", "4"});
  EXPECT_EQ(paint_.coats, 4U);
  read({"--layers=5", "--primer"});
  EXPECT_EQ(paint_.coats, 5U);
  EXPECT_TRUE(paint_.primer);
  read({"--primer=off"});
  EXPECT_FALSE(paint_.primer);
}

TEST_F(OptionTableTest, TheLastOfAFlagCountsAndListsGrow) {
  read({"-c", "3", "-c", "4", "--helpers", "a,b", "--helpers", "c"});
  EXPECT_EQ(paint_.coats, 4U);
  EXPECT_EQ(paint_.helpers, (std::vector<std::string>{"a", "b", "c"}));
}

TEST_F(OptionTableTest, FlagsWinOverEnvironmentOverFile) {
  const auto path = file("coats = 3\nbucket = '4M'\nbrand = 'file'\n");
  read({"--config", path, "-c", "5"}, {{"CARAVAN_COATS", "4"}, {"CARAVAN_BUCKET", "8M"}});
  EXPECT_EQ(paint_.coats, 5U);
  EXPECT_EQ(paint_.bucket, 8ULL << 20);
  EXPECT_EQ(paint_.brand, "file");
}

TEST_F(OptionTableTest, TheFileTakesTomlTypes) {
  const auto path = file("coats = 3\nprimer = false\nhelpers = ['a', 'b']\ncolour = 'green'\n");
  read({}, {{"CARAVAN_CONFIG", path}});
  EXPECT_EQ(paint_.coats, 3U);
  EXPECT_FALSE(paint_.primer);
  EXPECT_EQ(paint_.helpers, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(paint_.colour, Colour::green);
}

TEST_F(OptionTableTest, WrongFilesAreRefusedWithTheirLine) {
  EXPECT_EQ(error({"--config", "/nonexistent.toml"}),
            "/nonexistent.toml: cannot be read; give a TOML file to --config");
  auto path = file("coats = 3\n\ncoast = 3\n");
  EXPECT_EQ(error({"--config", path}), path + ":3: unknown key coast; did you mean coats?");
  path = file("coats = [1, 2]\n");
  EXPECT_EQ(error({"--config", path}), path + ":1: coats: give a text, a number, or true or false");
  path = file("coats = 99\n");
  EXPECT_EQ(error({"--config", path}), path + ":1: coats 99: give a whole number from 1 to 9");
  path = file("coats = \n");
  EXPECT_NE(error({"--config", path}).find(path + ":1: "), std::string::npos) << error({"--config", path});
  path = file("[paint]\ncoats = 3\n");
  EXPECT_EQ(error({"--config", path}), path + ":1: unknown key paint");
}

TEST_F(OptionTableTest, UnknownFlagsGetTheNearestName) {
  EXPECT_EQ(error({"--caots", "3"}), "unknown flag --caots; did you mean --coats?");
  EXPECT_EQ(error({"-coats", "3"}), "unknown flag -coats; did you mean --coats?");
  EXPECT_EQ(error({"--no-primmer"}), "unknown flag --no-primmer; did you mean --no-primer?");
  EXPECT_EQ(error({"--layer=3"}), "unknown flag --layer; did you mean --layers?");
  EXPECT_EQ(error({"--temperature", "3"}), "unknown flag --temperature; see caravan paint -h");
}

TEST_F(OptionTableTest, BadValuesSayWhereTheyStoodAndWhatToGive) {
  EXPECT_EQ(error({"-c", "0"}), "--coats 0: give a whole number from 1 to 9");
  EXPECT_EQ(error({"-c", "-5"}), "--coats -5: give a whole number from 1 to 9");
  EXPECT_EQ(error({"--bucket", "1Q"}), "--bucket 1Q: give a size such as 512M or 8G");
  EXPECT_EQ(error({"--bucket", ""}), "--bucket \"\": give a size such as 512M or 8G");
  EXPECT_EQ(error({"--colour", "gren"}), "--colour gren: give one of red, green; did you mean green?");
  EXPECT_EQ(error({}, {{"CARAVAN_PRIMER", "maybe"}}), "CARAVAN_PRIMER maybe: give on or off");
  EXPECT_EQ(error({"--coats"}), "--coats needs a value; see caravan paint -h");
  EXPECT_EQ(error({"wall", "door"}), "door is one word too many; see caravan paint -h");
}

TEST_F(OptionTableTest, SecretsAreNotShownInErrors) {
  Binding secret = texts(paint_.helpers, "KEY");
  secret.secret = true;
  table_.add({.name = "key", .binding = secret, .help = "key"});
  EXPECT_EQ(error({"--key", "hush,"}), "--key (not shown): give something, with commas between");
}

TEST_F(OptionTableTest, AServiceAddressFromKubernetesIsNotAValue) {
  read({}, {{"CARAVAN_COATS", "tcp://10.0.0.1:80"}});
  EXPECT_EQ(paint_.coats, 2U);
}

TEST_F(OptionTableTest, AMistypedEnvironmentNameIsRefusedAForeignOneIsNot) {
  EXPECT_EQ(error({}, {{"CARAVAN_COTAS", "3"}}),
            "CARAVAN_COTAS in the environment is no option; did you mean CARAVAN_COATS?");
  EXPECT_EQ(error({}, {{"CARAVAN_SERVICE_HOST", "10.0.0.1"}, {"CARAVAN_COATS_80_TCP", "x"}}), "");
}

TEST_F(OptionTableTest, AnyWordsAndAnyFileAreAnsweredWithoutHarm) {
  EXPECT_TRUE(rc::check("words", [this](const std::vector<std::string>& words) { RC_ASSERT(answered(words)); }));
  EXPECT_TRUE(rc::check("flags", [this] {
    const auto words = *rc::gen::container<std::vector<std::string>>(
        rc::gen::element<std::string>("--coats", "-c", "--no-primer", "--primer=", "--=", "-", "--", "---", "=",
                                      "-c=", "--bucket", "\xFF", "--help=x", "--config", "9", "wall"));
    RC_ASSERT(answered(words));
  }));
  EXPECT_TRUE(rc::check("file", [this](const std::string& text) {
    const auto path = file("coats = 1\n" + text);
    RC_ASSERT(answered({"--config", path}));
  }));
}

TEST_F(OptionTableTest, HelpShowsNamesDefaultsAndExamples) {
  EXPECT_EQ(table_.read(std::vector<std::string>{"-h"}, {}).value(), Wanted::brief_help);
  EXPECT_EQ(table_.read(std::vector<std::string>{"--coats", "x", "--help"}, {}).value(), Wanted::full_help);
  for (const auto style : {HelpStyle::brief, HelpStyle::full, HelpStyle::markdown}) {
    const std::string help = table_.help(style);
    for (const char* part : {"--coats N", "1M", "red|green", "caravan paint wall", "no-]primer"}) {
      const std::string escaped =
          std::string(part) == "red|green" && style == HelpStyle::markdown ? "red\\|green" : part;
      EXPECT_NE(help.find(escaped), std::string::npos) << escaped << " in\n" << help;
    }
  }
}

}  // namespace
}  // namespace caravan::cli
