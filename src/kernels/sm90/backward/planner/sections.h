// Which heads are worked on together, so that their rows stay in L2: sections of KV heads, and some query
// heads of each at a time. The last section is long enough for all CTAs to end together. Host code without
// CUDA.
#pragma once

#include <cstdint>

#include "attention/problem.h"
#include "kernels/sm90/backward/planner/items.h"
#include "kernels/sm90/backward/planner/shape.h"

namespace longspan::sm90 {

// How key tiles are split into items. `workers`: CTAs, or streams of items.
BackwardSharing sharing_of(const Problem& problem, const BackwardShape& shape, const BackwardSplit& split,
                           int64_t key_tiles, int64_t workers);

struct BackwardSections {
  int32_t heads = 1;  // KV heads of a section
  int32_t last = 0;   // the number of the last section, which takes the heads that are left
};
// `per_list`: items of a KV head.
BackwardSections sections_of(const Problem& problem, const BackwardShape& shape, const BackwardSplit& split,
                             int64_t per_list, int64_t workers);

}  // namespace longspan::sm90
