// Suggestions for mistyped names.
#include "base/nearest.h"

#include <gtest/gtest.h>

namespace longspan {
namespace {

TEST(DidYouMean, OffersTheNearestName) {
  const std::vector<std::string> names{"causal", "full", "kernel"};
  EXPECT_EQ(did_you_mean("casual", names), " (did you mean 'causal'?)");
  EXPECT_EQ(did_you_mean("kernels", names), " (did you mean 'kernel'?)");
  EXPECT_EQ(did_you_mean("caus", names), " (did you mean 'causal'?)");
  EXPECT_EQ(did_you_mean("quantum", names), "");
  EXPECT_EQ(did_you_mean("", names), "");
  EXPECT_EQ(did_you_mean(std::string(1'000'000, 'x'), names), "");
}

}  // namespace
}  // namespace longspan
