// Units, digits and columns.
#include "report/format.h"

#include <gmock/gmock.h>

namespace longspan::report {
namespace {

using ::testing::ElementsAre;

TEST(Format, ThreeDigits) {
  EXPECT_EQ(three_digits(0), "0");
  EXPECT_EQ(three_digits(0.012345), "0.0123");
  EXPECT_EQ(three_digits(1), "1.00");
  EXPECT_EQ(three_digits(9.994), "9.99");
  EXPECT_EQ(three_digits(9.996), "10.0");
  EXPECT_EQ(three_digits(99.96), "100");
  EXPECT_EQ(three_digits(1234.4), "1234");
  EXPECT_EQ(three_digits(2.5e-7), "2.50e-07");
  EXPECT_EQ(three_digits(-3.14159), "-3.14");
}

TEST(Format, TimesRatesAndBytes) {
  EXPECT_EQ(format_time(1.5e-9), "1.50 ns");
  EXPECT_EQ(format_time(42e-6), "42.0 us");
  EXPECT_EQ(format_time(0.9996e-3), "1.00 ms");
  EXPECT_EQ(format_time(12.3), "12.3 s");
  EXPECT_EQ(format_time(7200), "2.00 h");
  EXPECT_EQ(rate_unit(7.9e14).name, "TFLOP/s");
  EXPECT_EQ(format_rate(7.47e14, rate_unit(7.9e14)), "747");
  EXPECT_EQ(rate_unit(52e9).name, "GFLOP/s");
  EXPECT_EQ(format_bytes(100), "100 B");
  EXPECT_EQ(format_bytes(3 << 20), "3.00 MiB");
  EXPECT_EQ(format_bytes(1023.9 * 1024), "1.00 MiB");
  EXPECT_EQ(format_share(0.0612), "6.1 %");
  EXPECT_EQ(format_share(0.612), "61 %");
  EXPECT_EQ(format_seqlen(8192), "8K");
  EXPECT_EQ(format_seqlen(1 << 20), "1M");
  EXPECT_EQ(format_seqlen(1000), "1000");
}

TEST(Format, WidthCountsCharactersNotBytes) {
  EXPECT_EQ(display_width("±1.0 %"), 6u);
  EXPECT_EQ(fit("sliding_window", 10), "sliding...");
  EXPECT_EQ(fit("éééééé", 5), "éé...");
  EXPECT_EQ(fit("short", 10), "short");
  EXPECT_THAT(wrap("aa bb  cc", 5), ElementsAre("aa bb", "cc"));
  EXPECT_THAT(wrap("longer-than-that b", 5), ElementsAre("longer-than-that", "b"));
}

}  // namespace
}  // namespace longspan::report
