// What the files that launch the portable kernels share.
#pragma once

#include <limits>

#include "base/cuda/cuda.h"
#include "base/cuda/cuda_check.h"
#include "base/error.h"
#include "kernels/gpu/shared_memory_grant.h"
#include "kernels/portable/instances.h"
#include "kernels/portable/isa/ptx.cuh"
#include "kernels/portable/launch.h"

namespace longspan::portable {

inline unsigned grid_of(int64_t ctas) {
  LONGSPAN_CHECK(ctas <= std::numeric_limits<int32_t>::max(), "{} CTAs: a grid has at most 2^31 - 1", ctas);
  return static_cast<unsigned>(ctas);
}

}  // namespace longspan::portable
