#include "kernels/cpu/gemm.h"

#include <array>
#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace longspan {
namespace {

class Gemm : public testing::TestWithParam<GemmLibrary> {};

// Compares with plain loops in f64, with strides larger than the rows, for the shapes that kernels use.
TEST_P(Gemm, MultipliesAsPlainLoopsDo) {
  if (!available(GetParam())) GTEST_SKIP() << "this library is not in this build, or not for this machine";
  for (const bool accumulate : {false, true}) {
    for (const auto& [rows, columns, depth] : std::vector<std::array<int32_t, 3>>{{16, 64, 8},
                                                                                  {128, 64, 128},
                                                                                  {40, 64, 112},
                                                                                  {128, 40, 64},
                                                                                  {48, 8, 64},
                                                                                  {256, 64, 16},
                                                                                  {16, 256, 256}}) {
      const GemmShape shape{rows, columns, depth, depth + 8, columns + 16, columns + 24, accumulate};
      std::vector<float> left(rows * shape.left_stride), right(depth * shape.right_stride),
          out(rows * shape.out_stride);
      for (size_t i = 0; i < left.size(); ++i) left[i] = std::sin(0.1f * i);
      for (size_t i = 0; i < right.size(); ++i) right[i] = std::cos(0.7f * i);
      for (size_t i = 0; i < out.size(); ++i) out[i] = 0.25f * (i % 7);
      const std::vector<float> before = out;
      SmallGemm(shape, GetParam())(left.data(), right.data(), out.data());
      for (int32_t i = 0; i < rows; ++i) {
        for (int32_t j = 0; j < shape.out_stride; ++j) {
          const size_t at = size_t(i) * shape.out_stride + j;
          double truth = j >= columns || accumulate ? before[at] : 0;
          for (int32_t k = 0; k < depth && j < columns; ++k) {
            truth +=
                double{left[size_t(i) * shape.left_stride + k]} * right[size_t(k) * shape.right_stride + j];
          }
          ASSERT_NEAR(out[at], truth, 1e-4)
              << rows << " x " << columns << " x " << depth << " at " << i << ", " << j;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Libraries, Gemm, testing::Values(GemmLibrary::kXsmm, GemmLibrary::kBlas),
                         [](const auto& info) { return info.param == GemmLibrary::kXsmm ? "Xsmm" : "Blas"; });

}  // namespace
}  // namespace longspan
