#include "kernels/sm90/backward_shape.h"

#include "kernels/sm90/block_alignment.h"

namespace longspan::sm90 {

BackwardShape choose_backward_shape(const Problem& problem) {
  BackwardShape shape;
  const int64_t block = block_alignment(*problem.masks);
  if (problem.deterministic) {
    shape.store = BackwardStore::kOrdered;
  } else if (block == kFinestBlock) {
    shape.keys = 64;
    shape.store = BackwardStore::kRegisters;
  }
  // Blocks are scattered over all rows: what L2 can keep is one head.
  if (block >= kFinestBlock) shape.section_units = 1;
  // An item for each query head: blocks that work at the same time then share its rows in L2.
  shape.parts = static_cast<int>(problem.group_size());
  return shape;
}

}  // namespace longspan::sm90
