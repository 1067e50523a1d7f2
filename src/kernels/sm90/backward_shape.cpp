#include "kernels/sm90/backward_shape.h"

#include "kernels/sm90/block_alignment.h"

namespace longspan::sm90 {
namespace {

// Rows that see a mean key, from which an item of one head is long enough.
constexpr int64_t kLongColumn = 2048;
constexpr int64_t kEnoughItems = 1056;  // eight for each of 132 multiprocessors
constexpr int kMostTiles = 160;

}  // namespace

BackwardShape choose_backward_shape(const Problem& problem) {
  BackwardShape shape;
  const int64_t block = block_alignment(*problem.masks), group = problem.group_size();
  if (problem.deterministic) {
    shape.store = BackwardStore::kOrdered;
  } else if (block == kFinestBlock) {
    shape.keys = 64;
    shape.store = BackwardStore::kRegisters;
    shape.in_rows = false;
  }
  // Blocks are scattered over all rows: what L2 can keep is one head.
  const bool scattered = block >= kFinestBlock || problem.masks->size() > 1;
  if (scattered) shape.section_units = 1;
  // One query head an item: blocks that work at the same time then share its rows in L2. But an item's
  // beginning and end take as long as two or three tiles, so that short ones go over several heads.
  const bool is_long = problem.area() >= kLongColumn * problem.tokens_kv * problem.heads_q;
  int64_t parts = group;
  if (!is_long && !scattered) {
    const int64_t items = (problem.tokens_kv + shape.keys - 1) / shape.keys * problem.heads_kv;
    if (problem.deterministic) parts = 1;  // parts of a group would wait for each other
    while (parts % 2 == 0 && items * parts / 2 >= kEnoughItems) parts /= 2;
    shape.most_tiles = kMostTiles;
  }
  shape.parts = static_cast<int>(parts);
  // Tiles of one long mask gain little from beginning where its bands do; and where they stay, dq's sums are
  // added faster as threads hold them.
  const bool cuts = problem.masks->front().bands().size() > 1;  // if not, all bands begin where the mask does
  if ((is_long || !cuts) && !scattered && problem.head_dim == 128 && !problem.deterministic)
    shape.in_rows = false;
  shape.aligned = shape.in_rows && block < kFinestBlock;
  return shape;
}

}  // namespace longspan::sm90
