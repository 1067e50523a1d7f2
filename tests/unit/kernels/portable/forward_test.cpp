// The portable forward kernel in the emulation.
#include <gmock/gmock.h>
#include <fmt/format.h>

#include "attention/oracle/verify.h"
#include "emulated_plan.h"
#include "unit/kernels/attention_case.h"
#include "mask/patterns/patterns.h"

namespace longspan::portable {
namespace {

TEST(PortableForward, Smoke) {
  for (int64_t d : {64, 96, 128, 192, 256, 40}) {
    for (int64_t s : {1, 63, 129, 300}) {
      Problem p = make_problem(Mask(s, s, {{{0, s}, {0, s}, kUnboundedBelow, 0}}), 4, 2, d, DType::kBF16);
      auto plan = emulated_plan(p, 80);
      const VerifyReport report = verify(*plan, p, Direction::kBackward, cpu_device(), {});
      EXPECT_EQ(report.failure, "") << d << " " << s;
    }
  }
}

}  // namespace
}  // namespace longspan::portable
