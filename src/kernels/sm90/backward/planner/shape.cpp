#include "kernels/sm90/backward/planner/shape.h"

#include <algorithm>

#include "kernels/sm90/tuning/h200.h"
#include "mask/block_alignment.h"

namespace longspan::sm90 {
namespace {

namespace tuned = h200::backward;
using h200::kFinestBlock, h200::kLargestBlock;
using enum BackwardKind;

// Whether a mean key is seen by `rows` rows or more.
bool seen_by(const Problem& problem, int64_t rows) {
  return problem.area() >= rows * problem.tokens_kv * problem.heads_q;
}

// Whether at least this share of all pairs is visible.
bool is_visible(const Problem& problem, double share) {
  const int64_t pairs = problem.tokens_q * problem.tokens_kv * problem.heads_q;
  return static_cast<double>(problem.area()) >= share * static_cast<double>(pairs);
}

// If blocks of 64 keys are mostly visible, tiles of 128 keys visit a fourth more, and are faster by as much.
// Ordered additions from tiles of 64 by 64 must be few enough for a simulated run: in the order of items they
// would stall, as there are more of them, and they are smaller.
bool takes_finest_tiles(const Problem& problem, int64_t block) {
  return block == kFinestBlock && !is_visible(problem, tuned::kMostlyVisible) &&
         (!problem.deterministic ||
          problem.area() <= tuned::kMaxScheduledVisits * kFinestBlock * kFinestBlock);
}

bool is_window(const Mask& mask) {
  return mask.bands().size() == 1 && mask.bands()[0].bounded();
}

BackwardKind kind_of(const Problem& problem, int64_t block) {
  if (problem.masks->size() > 1) return kScattered;
  const Mask& mask = problem.masks->front();
  const bool one_band_a_row = mask.bands().size() == mask.bands().groups().size();
  if (block >= kFinestBlock) return block == kLargestBlock && one_band_a_row ? kBlocks : kScattered;
  const bool half_visible = is_visible(problem, tuned::kHalfVisible);
  const bool documents = mask.bands().size() > 1 && !half_visible && problem.head_dim <= 128;  // as measured
  const bool longer = (is_window(mask) || documents) && !problem.deterministic;
  if (seen_by(problem, longer ? tuned::kVeryLongColumn : tuned::kLongColumn)) return kLong;
  if (mask.bands().size() <= 1) return kOneBand;
  // Half visible, so not documents. By default treated so, as items of one head would be too short.
  return half_visible && problem.deterministic ? kLong : kBands;
}

// Zeros cost a pass over dq, but little if L2 holds it. Claims make CTAs that reach a row tile together wait
// for the first one: in a full mask all do. In documents claims leave less to move, so fewer CTAs do passes.
bool begins_with_zeros(const Problem& problem, BackwardKind kind) {
  const auto rows = static_cast<double>(problem.heads_q * problem.tokens_q * problem.head_dim);
  const bool cheap = kind == kBands || (kind == kOneBand && rows <= tuned::kRowsInL2);
  return kind == kLong || (cheap && is_visible(problem, tuned::kHalfVisible)) ||
         (kind == kOneBand && is_visible(problem, tuned::kMostlyVisible));
}

// Blocks are scattered over all rows, so L2 holds one head.
int section_units_of(const Problem& problem, BackwardKind kind) {
  if (kind == kScattered || (kind == kBlocks && !problem.deterministic)) return tuned::kScatteredSectionUnits;
  const bool very_long = kind == kLong && !problem.deterministic && seen_by(problem, tuned::kVeryLongColumn);
  return very_long ? tuned::kVeryLongSectionUnits : 0;
}

// Tiles of 128 by 128, or 64 by 192. They save registers in a way for which f16 has too little range
// (scale_x2). Blocks that they would fit badly, and ordered additions, have not been tried.
bool takes_largest_tiles(const Problem& problem, BackwardKind kind, int64_t block) {
  return problem.head_dim == tuned::kLargestTilesHeadDim && problem.dtype == DType::kBF16 &&
         !problem.deterministic && (kind != kScattered || block == kLargestBlock);
}

// Depends on the mask in nothing that its launches show: instance, grid of tiles, passes.
BackwardShape shape_of_same_launches(const Problem& problem, BackwardShape shape) {
  shape.store = problem.deterministic ? BackwardStore::kOrdered : BackwardStore::kAdded;
  if (takes_largest_tiles(problem, kLong, 0)) shape.keys = tuned::kWidestKeys;
  shape.in_rows = problem.head_dim != 128 && shape.keys == 128;
  shape.aligned = shape.by_time = false;
  return shape;
}

// Above head_dim 128 there is one instance for each store.
BackwardShape large_shape(const Problem& problem, BackwardShape shape) {
  shape.large = true, shape.in_rows = shape.aligned = shape.by_time = false;
  shape.store = problem.deterministic ? BackwardStore::kOrdered : BackwardStore::kAdded;
  if (!problem.same_launches && !problem.deterministic)
    shape.section_units = section_units_of(problem, shape.kind);
  return shape;
}

}  // namespace

BackwardShape choose_backward_shape(const Problem& problem) {
  const int64_t block = block_alignment(*problem.masks, kFinestBlock, kLargestBlock);
  BackwardShape shape;
  shape.kind = kind_of(problem, block);
  if (problem.head_dim > 128) return large_shape(problem, shape);
  if (problem.same_launches) return shape_of_same_launches(problem, shape);
  if (takes_finest_tiles(problem, block)) shape.keys = 64;
  shape.store = problem.deterministic                    ? BackwardStore::kOrdered
                : shape.keys == 64                       ? BackwardStore::kRegisters
                : begins_with_zeros(problem, shape.kind) ? BackwardStore::kAdded
                                                         : BackwardStore::kClaimed;
  shape.section_units = section_units_of(problem, shape.kind);
  const bool long_or_band = shape.kind == kLong || shape.kind == kOneBand;
  const bool claimed_band = shape.kind == kOneBand && shape.store == BackwardStore::kClaimed;
  const bool largest = shape.keys == 128 && takes_largest_tiles(problem, shape.kind, block);
  // Blocks fill tiles of 192 keys badly, and short masks but windows have too few of them.
  const bool window = shape.kind == kOneBand && is_window(problem.masks->front());
  const bool widest = largest && (shape.kind == kLong || shape.kind == kBands || window);
  if (widest) shape.keys = tuned::kWidestKeys;
  if (largest && !widest) shape.rows = tuned::kTallestRows;
  // Tiles of a long mask gain little from beginning at edges of bands, and those of one band gain nothing.
  // On an even grid, sums of dq are added faster, as threads hold them. The passes inside, which need claims
  // and sums in token rows, gain more; and tiles of 192 keys claim sums in token rows alone.
  const bool stay = (long_or_band && !(claimed_band && (problem.head_dim == 128 || widest))) ||
                    (shape.kind == kBlocks && problem.deterministic);
  shape.in_rows = shape.keys != 64 && !(stay && (problem.head_dim == 128 || largest));
  shape.aligned = shape.in_rows && block < kFinestBlock;
  if (problem.head_dim == 128 && !shape.in_rows &&
      (shape.kind == kLong || (shape.kind == kOneBand && problem.deterministic)))
    shape.rows = tuned::kTallRows;
  // Measured for documents, windows, causal masks and variable blocks of head_dim 128.
  if ((claimed_band || shape.kind == kBands) && problem.head_dim == 128 && can_do_passes(problem, shape))
    shape.pass_ctas = kAsSuits;
  // Documents take long to lay out, and are faster in tiles of 64 rows if their columns are shorter. At
  // head_dim 64 they take longer in tiles of 128 by 128 than the simulation says (version 75).
  const int64_t column = shape.kind == kBands ? tuned::kLongColumn : tuned::kTallColumn;
  const bool tall = problem.head_dim == 128 && shape.rows == 64 && seen_by(problem, column);
  shape.any_tile = !problem.deterministic &&
                   ((largest && long_or_band) || (tall && (long_or_band || shape.kind == kBands)));
  return shape;
}

BackwardShape other_tile(BackwardShape shape) {
  shape.any_tile = false, shape.pass_ctas = 0;
  if (shape.keys == tuned::kWidestKeys && shape.kind == BackwardKind::kOneBand) {  // a window
    shape.keys = 128, shape.in_rows = shape.aligned = true;
  } else if (shape.keys == tuned::kWidestKeys) {
    shape.rows = tuned::kTallestRows, shape.keys = 128;
  } else if (shape.rows == tuned::kTallestRows) {
    shape.rows = 64, shape.keys = tuned::kWidestKeys;
    shape.in_rows = shape.aligned = shape.store == BackwardStore::kClaimed;  // no instance claims held sums
  } else {
    shape.rows = tuned::kTallRows, shape.store = BackwardStore::kAdded;
    shape.in_rows = shape.aligned = false;
  }
  return shape;
}

bool can_do_passes(const Problem& problem, const BackwardShape& shape) {
  return shape.in_rows && shape.rows == 64 && shape.keys == 128 && shape.store != BackwardStore::kOrdered &&
         problem.masks->size() == 1 && (!problem.fp32_output || problem.own_rows);
}

}  // namespace longspan::sm90
