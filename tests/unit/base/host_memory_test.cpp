// Estimates of memory that no machine has are refused.
#include "base/host_memory.h"

#include <limits>

#include <gmock/gmock.h>

#include "longspan/base.h"

namespace longspan {
namespace {

TEST(HostMemory, WhatFitsIsAllowed) {
  check_host_memory(0, "nothing");
  check_host_memory(1 << 20, "a few masks");
}

TEST(HostMemory, WhatDoesNotFitIsRefusedWithBothNumbers) {
  for (const double bytes : {1e18, 1e300, std::numeric_limits<double>::infinity()}) {
    try {
      check_host_memory(bytes, "4 masks");
      ADD_FAILURE() << bytes;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kOutOfMemory);
      EXPECT_THAT(error.what(),
                  ::testing::MatchesRegex("out of memory: 4 masks need about .* GiB, and .* GiB are free"));
    }
  }
}

}  // namespace
}  // namespace longspan
