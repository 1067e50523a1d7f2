#include "kernels/sm90/backward_shape.h"

namespace longspan::sm90 {
namespace {

constexpr int64_t kItemsPerUnit = 3;  // fewer leave the last ones alone for too long

}  // namespace

BackwardShape choose_backward_shape(const Problem& problem, int units) {
  BackwardShape shape;
  const int64_t items = (problem.tokens_kv + kBackwardKeys - 1) / kBackwardKeys * problem.heads_kv;
  // A group is shared out only where there is too little work: its items add their dk and dv in fp32.
  if (!problem.deterministic)
    while (items * shape.parts < kItemsPerUnit * units && problem.group_size() % (2 * shape.parts) == 0)
      shape.parts *= 2;
  return shape;
}

}  // namespace longspan::sm90
