#include <gtest/gtest.h>

#include <random>
#include <string>

#include "engine/options.hpp"
#include "support/error.hpp"

namespace ddl {
namespace {

std::string error_of(const std::string& text) {
  try {
    parse_options(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), DDL_ERR_OPTION);
    return error.what();
  }
  return "";
}

TEST(Options, Defaults) {
  const Options options = parse_options("");
  EXPECT_EQ(options.mode, 'p');
  EXPECT_TRUE(options.dims.empty());
  EXPECT_DOUBLE_EQ(options.limits.timeout_s, 300);
  EXPECT_DOUBLE_EQ(options.limits.late_s, 60);
  EXPECT_DOUBLE_EQ(options.limits.patience_s, 1800);
  EXPECT_EQ(options.dump_iter, 0);
  EXPECT_EQ(options.dbg_level, 0);
}

TEST(Options, All) {
  const Options options = parse_options(
      "  -mode r:6x2x1x1 --timeout 2.5\t-dump_iter=100 -dev_sync 2 -rebind_iter 7 -dbg_level 1 -late 5 "
      "--patience=77\n");
  EXPECT_EQ(options.mode, 'r');
  EXPECT_EQ(options.dims, (std::vector<int>{6, 2, 1, 1}));
  EXPECT_DOUBLE_EQ(options.limits.timeout_s, 2.5);
  EXPECT_DOUBLE_EQ(options.limits.late_s, 5);
  EXPECT_DOUBLE_EQ(options.limits.patience_s, 77);
  EXPECT_EQ(options.dump_iter, 100);
  EXPECT_EQ(options.dev_sync, 2);
  EXPECT_EQ(options.rebind_iter, 7);
  EXPECT_EQ(options.dbg_level, 1);
}

TEST(Options, EveryModeLetter) {
  for (const char letter : std::string("pbnrmc")) {
    EXPECT_EQ(parse_options(std::string("-mode ") + letter + ":4").mode, letter);
  }
}

TEST(Options, LastOneWins) { EXPECT_EQ(parse_options("-mode p:2x2 -mode r").dims.size(), 0u); }

TEST(Options, OfTheProgramOverThoseOfTheJob) {
  const Options job = parse_options("-mode p:4x2 -timeout 30 -wire fp16");
  const Options more = parse_options("-mode b -dump_iter 7", job);
  EXPECT_EQ(more.mode, 'b');
  EXPECT_EQ(more.dims, (std::vector<int>{4, 2}));
  EXPECT_EQ(more.limits.timeout_s, 30);
  EXPECT_EQ(more.dump_iter, 7);
  EXPECT_EQ(more.wire, WireFormat::kFp16);
  EXPECT_EQ(more.text, "-mode p:4x2 -timeout 30 -wire fp16 -mode b -dump_iter 7");
  EXPECT_EQ(parse_options("-mode p:2x4", job).dims, (std::vector<int>{2, 4}));
  EXPECT_TRUE(parse_options("-mode p -topology none", job).dims.empty());
  EXPECT_EQ(parse_options("", job), job);
}

TEST(Options, SameEffectHoweverWritten) {
  const Options job = parse_options("-mode p:4x2 -timeout 30");
  for (const char* text : {"", "-mode p", "--mode=p:4x2", "-timeout 30.0 -dump_iter 0"}) {
    EXPECT_TRUE(same_effect(parse_options(text, job), job)) << text;
  }
  for (const char* text : {"-mode r", "-mode p:2x4", "-timeout 31", "-late 5", "-patience 5", "-wire q8",
                           "-dump_iter 1", "-deterministic off", "-topology none", "-timeline f",
                           "-dev_sync 1", "-rebind_iter 2", "-dbg_level 1"}) {
    EXPECT_FALSE(same_effect(parse_options(text, job), job)) << text;
  }
}

TEST(Options, UnknownOptionListsTheValidOnes) {
  const std::string text = error_of("-mod p");
  EXPECT_NE(text.find("[ERROR DDL-1-2] unknown option '-mod'"), std::string::npos) << text;
  for (const char* name : {"-mode", "-timeout", "-dump_iter", "-dev_sync", "-rebind_iter", "-dbg_level"}) {
    EXPECT_NE(text.find(name), std::string::npos) << text;
  }
}

TEST(Options, BadValuesAreNamed) {
  for (const char* bad : {"-mode q",
                          "-mode p:",
                          "-mode p2",
                          "-mode p:0x2",
                          "-mode p:2x",
                          "-mode p:x2",
                          "-mode p:-1",
                          "-mode p:1x1x1x1x1",
                          "-mode p:99999999999",
                          "-timeout 0",
                          "-timeout -1",
                          "-timeout nan",
                          "-timeout inf",
                          "-timeout 1s",
                          "-dev_sync 3",
                          "-dbg_level -1",
                          "-dump_iter x",
                          "-dump_iter",
                          "-dbg_level=",
                          "-mode=",
                          "mode p",
                          "-",
                          "--",
                          "p"}) {
    EXPECT_NE(error_of(bad).find("[ERROR DDL-1-2]"), std::string::npos) << bad;
  }
}

TEST(Options, DimsMustMultiplyToTheSize) {
  check_dims(parse_options("-mode p:3x2"), 6);
  check_dims(parse_options("-mode p"), 5);
  try {
    check_dims(parse_options("-mode p:3x2x1"), 4);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("invalid dim size=4 usr_size=6 dim[0]=3 dim[1]=2 dim[2]=1"),
              std::string::npos)
        << error.what();
  }
}

TEST(Options, HugeDimsDoNotOverflow) {
  EXPECT_THROW(check_dims(parse_options("-mode p:16777216x16777216x16777216x1"), 0), Error);
}

TEST(Options, AnyTextParsesOrIsRefused) {
  // Words that mean something, and characters that mean nothing, in random order.
  const std::vector<std::string> pieces = {"-mode",
                                           "-timeout",
                                           "-dump_iter",
                                           " ",
                                           "=",
                                           "p:",
                                           "2x2",
                                           "x",
                                           "-",
                                           "--",
                                           "1e9",
                                           "0x10",
                                           "-1",
                                           "\t",
                                           ":",
                                           "r",
                                           "\xff",
                                           std::string(1, '\0'),
                                           "9999999999999999999",
                                           "nan"};
  std::mt19937 random(20260101);
  int parsed = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (std::size_t n = random() % 8; n > 0; --n) text += pieces[random() % pieces.size()];
    try {
      const Options options = parse_options(text);
      EXPECT_GT(options.limits.timeout_s, 0);
      EXPECT_LE(options.dims.size(), 4u);
      ++parsed;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), DDL_ERR_OPTION);
    }
  }
  EXPECT_GT(parsed, 100);
}

}  // namespace
}  // namespace ddl
