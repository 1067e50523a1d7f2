#include "record/base64.h"

#include <gtest/gtest.h>

namespace longspan::record {
namespace {

// RFC 4648, section 10.
TEST(Base64, AgreesWithTheStandard) {
  const auto encode = [](const std::string& text) {
    return base64(std::vector<uint8_t>(text.begin(), text.end()));
  };
  EXPECT_EQ(encode(""), "");
  EXPECT_EQ(encode("f"), "Zg==");
  EXPECT_EQ(encode("fo"), "Zm8=");
  EXPECT_EQ(encode("foo"), "Zm9v");
  EXPECT_EQ(encode("foob"), "Zm9vYg==");
  EXPECT_EQ(encode("fooba"), "Zm9vYmE=");
  EXPECT_EQ(encode("foobar"), "Zm9vYmFy");
}

TEST(Base64, IsDecodedOrRefused) {
  for (const std::vector<uint8_t>& bytes : {std::vector<uint8_t>{}, {0}, {255, 0}, {1, 2, 3}, {9, 8, 7, 6}})
    EXPECT_EQ(decode_base64(base64(bytes)), bytes);
  for (const char* wrong : {"A", "AAA", "A?==", "====A", "A==="}) EXPECT_FALSE(decode_base64(wrong)) << wrong;
}

}  // namespace
}  // namespace longspan::record
