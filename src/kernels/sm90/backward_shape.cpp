#include "kernels/sm90/backward_shape.h"

#include "kernels/sm90/block_alignment.h"

namespace longspan::sm90 {
namespace {

// Rows that see a mean key, from which an item of one head is long enough.
constexpr int64_t kLongColumn = 2048;
// Row tiles of a run, from which blocks drift so far apart that L2 does not keep what they read: at 128 of
// them it makes no difference, at 512 a tenth.
constexpr int kLongRun = 192;

// Whether rows see one band each.
bool contiguous(const Mask& mask) {
  const BandList& bands = mask.bands();
  return bands.size() == bands.groups().size();
}

BackwardKind kind_of(const Problem& problem, int64_t block) {
  if (problem.masks->size() > 1) return BackwardKind::kScattered;
  const Mask& mask = problem.masks->front();
  if (block >= kFinestBlock)
    return block == kLargestBlock && contiguous(mask) ? BackwardKind::kBlocks : BackwardKind::kScattered;
  if (problem.area() >= kLongColumn * problem.tokens_kv * problem.heads_q) return BackwardKind::kLong;
  if (mask.bands().size() <= 1) return BackwardKind::kOneBand;
  // Nor are they documents if half of all is visible. But items of one head would be too short.
  const bool dense = problem.area() * 2 >= problem.tokens_q * problem.tokens_kv * problem.heads_q;
  return dense && problem.deterministic ? BackwardKind::kLong : BackwardKind::kBands;
}

}  // namespace

BackwardShape choose_backward_shape(const Problem& problem) {
  BackwardShape shape;
  const int64_t block = block_alignment(*problem.masks);
  shape.kind = kind_of(problem, block);
  if (problem.deterministic) {
    shape.store = BackwardStore::kOrdered;
  } else if (block == kFinestBlock) {
    shape.keys = 64;
    shape.store = BackwardStore::kRegisters;
  }
  const bool blocks = shape.kind == BackwardKind::kBlocks, scattered = shape.kind == BackwardKind::kScattered;
  // Blocks are scattered over all rows: what L2 can keep is one head.
  if (scattered || (blocks && !problem.deterministic)) shape.section_units = 1;
  // Tiles of one long mask gain little from beginning where its bands do, those of one band nothing; and
  // where they stay, dq's sums are added faster as threads hold them.
  const bool stay = shape.kind == BackwardKind::kLong || shape.kind == BackwardKind::kOneBand ||
                    (blocks && problem.deterministic);
  shape.in_rows = shape.store != BackwardStore::kRegisters && !(stay && problem.head_dim == 128);
  shape.aligned = shape.in_rows && block < kFinestBlock;
  if (shape.store == BackwardStore::kClaimed) {
    if (shape.kind == BackwardKind::kLong) shape.wave = kLongRun;
    if (shape.kind == BackwardKind::kBands || blocks) shape.wave = kShortRun;
  }
  return shape;
}

}  // namespace longspan::sm90
