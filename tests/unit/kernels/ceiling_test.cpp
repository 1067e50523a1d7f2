#include "kernels/cpu/ceiling.h"

#include <gtest/gtest.h>

namespace longspan {
namespace {

TEST(Ceiling, IsTheBestOfItsRepeats) {
  const SgemmCeiling ceiling = measure_sgemm_ceiling(256, 0.0);
  EXPECT_GE(ceiling.repeats, 3);
  EXPECT_GT(ceiling.median_flops_per_s, 0);
  EXPECT_GE(ceiling.flops_per_s, ceiling.median_flops_per_s);
  EXPECT_FALSE(ceiling.core.empty());
}

}  // namespace
}  // namespace longspan
