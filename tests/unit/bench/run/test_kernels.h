// Kernels for tests: a correct one by the definition, and one for each way in which a kernel can fail.
#pragma once

#include <vector>

#include "attention/kernel.h"

namespace longspan::bench {

// good, wrong, unsupported, throws, crash, abort, hang, killed, out-of-memory, bad-alloc, huge-workspace,
// exits, garbage, spoils and suspect (a crash that another kernel causes), faulty (throws if TEST_FAULT is
// set), tires (computes nothing after some runs), flaky (correct within the tolerance, with different bits on
// every run), cuda-only
std::vector<const Kernel*> test_kernels();
const Kernel& test_kernel(std::string_view name);

}  // namespace longspan::bench
