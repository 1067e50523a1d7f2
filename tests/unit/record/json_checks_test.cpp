// What is refused in JSON beside what is not JSON.
#include "record/json_checks.h"

#include <gmock/gmock.h>

#include "longspan/base.h"
#include "record/json.h"

namespace longspan::record {
namespace {

using ::testing::HasSubstr;

std::string error_of(std::string_view text) {
  try {
    parse_json(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "no error";
}

std::string nested(size_t depth, const std::string& open, const std::string& close) {
  std::string text;
  for (size_t i = 0; i < depth; ++i) text += open;
  text += "1";
  for (size_t i = 0; i < depth; ++i) text += close;
  return text;
}

TEST(JsonChecks, NestingIsLimited) {
  EXPECT_EQ(error_of(nested(64, "[", "]")), "no error");
  EXPECT_EQ(error_of(nested(64, R"({"a":)", "}")), "no error");
  for (const size_t depth : {size_t{65}, size_t{100'000}, size_t{10'000'000}}) {
    EXPECT_THAT(error_of(nested(depth, "[", "]")), HasSubstr("nested more than 64 deep at byte 65"));
    EXPECT_THAT(error_of(nested(depth, R"({"a":)", "}")), HasSubstr("nested more than 64 deep"));
    EXPECT_THAT(error_of(std::string(depth, '[')), HasSubstr("nested more than 64 deep"));
  }
}

TEST(JsonChecks, BracketsInStringsDoNotNest) {
  EXPECT_EQ(error_of('"' + std::string(1000, '[') + '"'), "no error");
  EXPECT_EQ(error_of(R"(["\"[[[[", "\\", "]"])"), "no error");
}

TEST(JsonChecks, KeysAreGivenOnce) {
  EXPECT_EQ(error_of(R"({"a":{"a":1,"b":["a","a",{"a":2}]},"b":{"a":1}})"), "no error");
  EXPECT_EQ(error_of(R"([{"a":1},{"a":1}])"), "no error");
  EXPECT_THAT(error_of(R"({"a":1,"b":2,"a":3})"), HasSubstr("an object has the key \"a\" twice"));
  EXPECT_THAT(error_of(R"([{"b":[{"seqlen":1,"seqlen":2}]}])"), HasSubstr("the key \"seqlen\" twice"));
  EXPECT_THAT(error_of(R"({"a":{"x":1},"a":{"x":1}})"), HasSubstr("the key \"a\" twice"));
  EXPECT_THAT(error_of(R"({"":1,"":2})"), HasSubstr("the key \"\" twice"));
  EXPECT_THAT(error_of(R"({"a":1,"\u0061":2})"), HasSubstr("the key \"a\" twice")) << "escaped";
  EXPECT_THAT(error_of(R"({"\u001b[2J":1,"\u001b[2J":2})"), HasSubstr("\\x1b[2J"));
}

TEST(JsonChecks, NulBytesAreRefused) {
  EXPECT_THAT(error_of(std::string_view("{}\0", 3)), HasSubstr("byte 3 is NUL"));
  EXPECT_THAT(error_of(std::string_view("{\"a\0b\":1}", 9)), HasSubstr("byte 4 is NUL"));
}

TEST(JsonChecks, WhatIsNotJsonIsLeftToTheParser) {
  for (const char* text :
       {"", "]", "}", "[", "{", "\"", "\"\\", "{\"a", "{\"a\\", "{]}", "[}", ",", "{,}", "{\"a\":1", "nul"})
    EXPECT_THAT(error_of(text), HasSubstr("not valid JSON")) << text;
}

}  // namespace
}  // namespace longspan::record
