// What a terminal may be shown.
#include "base/printable.h"

#include <gtest/gtest.h>

namespace longspan {
namespace {

TEST(Printable, LeavesTextAlone) {
  EXPECT_EQ(printable(""), "");
  EXPECT_EQ(printable("caf\xc3\xa9 \\ \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x98\x80"),
            "caf\xc3\xa9 \\ \xe6\x97\xa5\xe6\x9c\xac \xf0\x9f\x98\x80");
}

TEST(Printable, IsOneLine) {
  EXPECT_EQ(printable("a\nb\tc\r\nd"), "a b c  d");
}

TEST(Printable, EscapesControlCharacters) {
  EXPECT_EQ(printable("a\x1b[31mb\x7f"), "a\\x1b[31mb\\x7f");
  EXPECT_EQ(printable(std::string_view("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\xc2\x9b"
                      "1m"),
            "\\x9b1m");
}

TEST(Printable, EscapesMarksOfDirectionAndSeparators) {
  EXPECT_EQ(printable("a\xe2\x80\xae"
                      "b\xe2\x81\xa6"
                      "c\xe2\x81\xa9\xe2\x80\xa8"),
            "a\\u202eb\\u2066c\\u2069\\u2028");
  EXPECT_EQ(printable("\xd8\x9c\xe2\x80\x8f"), "\\u061c\\u200f");
}

TEST(Printable, EscapesBytesThatAreNotUtf8) {
  EXPECT_EQ(printable("a\xff\xfe"), "a\\xff\\xfe");
  EXPECT_EQ(printable("\xc3"), "\\xc3");                             // cut
  EXPECT_EQ(printable("\xc3("), "\\xc3(");                           // no continuation
  EXPECT_EQ(printable("\xc0\xaf"), "\\xc0\\xaf");                    // overlong
  EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");           // a surrogate
  EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");  // above U+10FFFF
}

}  // namespace
}  // namespace longspan
