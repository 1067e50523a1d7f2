// Parsing and formatting of values.
#include "bench/spec/values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace longspan::bench {
namespace {

TEST(ParseCount, ReadsSuffixesOfPowersOf1024) {
  EXPECT_EQ(parse_count("0", 0, 10), 0);
  EXPECT_EQ(parse_count("8192", 1, 1 << 20), 8192);
  EXPECT_EQ(parse_count("8K", 1, 1 << 20), 8192);
  EXPECT_EQ(parse_count("8k", 1, 1 << 20), 8192);
  EXPECT_EQ(parse_count("1M", 1, 1 << 20), 1 << 20);
}

TEST(ParseCount, RefusesEverythingElse) {
  for (const char* text :
       {"", "K", "8X", "8 K", "-1", "1.5K", "0", "2M", "9223372036854775807", "8796093022208M", "0x10"}) {
    EXPECT_THROW(parse_count(text, 1, 1 << 20), Error) << text;
  }
}

TEST(ParseReal, ChecksItsRange) {
  EXPECT_EQ(parse_real("0.25", 0, 1), 0.25);
  EXPECT_EQ(parse_real("1", 0, 1), 1);
  for (const char* text : {"", "0", "-0.1", "1.5", "nan", "inf", "0.5x", "1e999"}) {
    EXPECT_THROW(parse_real(text, 0, 1), Error) << text;
  }
}

TEST(ParseDuration, ReadsUnits) {
  EXPECT_EQ(parse_duration("90"), 90);
  EXPECT_EQ(parse_duration("1.5s"), 1.5);
  EXPECT_EQ(parse_duration("30m"), 1800);
  EXPECT_EQ(parse_duration("2h"), 7200);
  for (const char* wrong : {"", "s", "0", "0s", "-1m", "2d", "1h30m", "nan"})
    EXPECT_THROW(parse_duration(wrong), Error) << wrong;
}

TEST(Format, BytesTimesAndRates) {
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(1.0 * (int64_t{1} << 50)), "1.00 PiB");
  EXPECT_EQ(format_duration(12.4), "12 s");
  EXPECT_EQ(format_duration(200), "3 min 20 s");
  EXPECT_EQ(format_duration(3720), "1 h 02 min");
  EXPECT_EQ(format_rate(85.14e9), "85.1 GFLOP/s");
  EXPECT_EQ(format_rate(1.5e12), "1.5 TFLOP/s");
}

TEST(Split, TrimsItsParts) {
  EXPECT_THAT(split("a, b,,c", ','), testing::ElementsAre("a", "b", "", "c"));
  EXPECT_THAT(split("", ','), testing::ElementsAre(""));
}

TEST(ShellQuoted, QuotesOnlyIfNeeded) {
  EXPECT_EQ(shell_quoted("--mask=a,b"), "--mask=a,b");
  EXPECT_EQ(shell_quoted("a b"), "'a b'");
  EXPECT_EQ(shell_quoted("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_quoted(""), "''");
}

// Identifiers of cases must never change, since results are compared by them.
TEST(Hash64, IsStable) {
  EXPECT_EQ(hex16(hash64("")), "2180a92350d49cce");
  EXPECT_EQ(hex16(hash64("longspan")), "7b3150b8c92c3ea8");
}

}  // namespace
}  // namespace longspan::bench
