#include "base/dtype.h"

#include <cmath>
#include <limits>

#include "base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace longspan {
namespace {

TEST(DType, NamesAreRead) {
  for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kF64}) {
    EXPECT_EQ(dtype_from_name(name_of(dtype)), dtype);
  }
  EXPECT_EQ(size_of(DType::kBF16), sizeof(bf16));
  EXPECT_EQ(size_of(DType::kF16), sizeof(f16));
  EXPECT_EQ(size_of(DType::kF32), sizeof(float));
  EXPECT_EQ(size_of(DType::kF64), sizeof(double));
  EXPECT_THAT([] { dtype_from_name("float"); },
              testing::ThrowsMessage<Error>(
                  testing::AllOf(testing::HasSubstr("'float'"), testing::HasSubstr("f32, bf16, f16, f64"))));
}

// Every stored value survives the conversion to float and back, NaN included.
TEST(DType, RoundTrips) {
  for (uint32_t u = 0; u < 65536; ++u) {
    const bf16 b{static_cast<uint16_t>(u)};
    const f16 h{static_cast<uint16_t>(u)};
    if (std::isnan(to_float(b))) {
      EXPECT_TRUE(std::isnan(to_float(to_bf16(to_float(b)))));
    } else {
      EXPECT_EQ(to_bf16(to_float(b)).bits, u);
    }
    if (std::isnan(to_float(h))) {
      EXPECT_TRUE(std::isnan(to_float(to_f16(to_float(h)))));
    } else {
      EXPECT_EQ(to_f16(to_float(h)).bits, u);
    }
  }
}

TEST(DType, RoundsToNearestEven) {
  EXPECT_EQ(to_float(to_bf16(1.0f + 0x1p-8f)), 1.0f);              // halfway, to even
  EXPECT_EQ(to_float(to_bf16(1.0f + 0x1.8p-7f)), 1.0f + 0x1p-6f);  // halfway, to even: up
  EXPECT_EQ(to_float(to_bf16(1.0f + 0x1.01p-8f)), 1.0f + 0x1p-7f);
  EXPECT_TRUE(std::isinf(to_float(to_bf16(std::numeric_limits<float>::max()))));
  EXPECT_EQ(to_float(to_f16(1.0f + 0x1p-11f)), 1.0f);
  EXPECT_EQ(to_float(to_f16(1.0f + 0x1.8p-10f)), 1.0f + 0x1p-9f);
  EXPECT_TRUE(std::isinf(to_float(to_f16(65520.f))));
  EXPECT_EQ(to_float(to_f16(65519.f)), 65504.f);
}

}  // namespace
}  // namespace longspan
