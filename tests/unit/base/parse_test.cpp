#include "base/parse.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace longspan {
namespace {

using ::testing::HasSubstr;

std::string message_of(std::string_view text) {
  try {
    parse_length(text, "--seqlen");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "no error";
}

TEST(ParseLength, ReadsNumbersAndUnits) {
  EXPECT_EQ(parse_length("0", ""), 0);
  EXPECT_EQ(parse_length("1000", ""), 1000);
  EXPECT_EQ(parse_length("8K", ""), 8192);
  EXPECT_EQ(parse_length("8k", ""), 8192);
  EXPECT_EQ(parse_length("1M", ""), 1 << 20);
  EXPECT_EQ(parse_length("2g", ""), int64_t{1} << 31);
  EXPECT_EQ(parse_length("9223372036854775807", ""), INT64_MAX);
}

TEST(ParseLength, SaysWhatIsAllowed) {
  for (const char* text : {"", "K", "8KB", "8 K", " 8", "1.5K", "-1", "+1", "0x10", "eight", "8Q", "8KK"})
    EXPECT_THAT(message_of(text), HasSubstr("must be a whole number of tokens, such as 1000, 8K or 1M"))
        << text;
  EXPECT_EQ(message_of("9223372036854775808"), "--seqlen 9223372036854775808: is too large");
  EXPECT_EQ(message_of("9007199254740992K"), "--seqlen 9007199254740992K: is too large");
  EXPECT_EQ(message_of("99999999999999999999x").find("--seqlen"), 0u);
}

TEST(FormatLength, IsReadBack) {
  EXPECT_EQ(format_length(8192), "8K");
  EXPECT_EQ(format_length(1 << 20), "1M");
  EXPECT_EQ(format_length(int64_t{1536} << 20), "1536M");
  EXPECT_EQ(format_length(1000), "1000");
  for (int64_t tokens : {int64_t{0}, int64_t{1}, int64_t{1023}, int64_t{1024}, int64_t{49152}, INT64_MAX})
    EXPECT_EQ(parse_length(format_length(tokens), ""), tokens);
}

}  // namespace
}  // namespace longspan
