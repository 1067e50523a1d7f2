// The constants by which the portable kernels' planner chooses, for GPUs that are not measured. Tiles are
// those of FlashAttention-2 where they fit, bounded by registers and shared memory. A GPU that is measured
// gets a file of its own beside this one.
#pragma once

#include "kernels/portable/shape.h"

namespace longspan::portable::generic {

// In order of preference for a head_dim.
//   head_dim, rows, keys, warps, stages
inline constexpr ForwardShape kForwardShapes[] = {
    {64, 128, 64, 4, 2}, {96, 128, 64, 4, 1}, {128, 128, 64, 4, 1}, {192, 128, 64, 8, 1}, {256, 64, 64, 4, 1},
};
//   head_dim, rows, keys, warps, key_groups, dq_rows, stages, parts
inline constexpr BackwardShape kBackwardShapes[] = {
    {64, 128, 128, 8, 4, 4, 1, 1},  // 129 KiB: not on 8.6, 8.9 and 12.x
    {64, 64, 128, 8, 4, 2, 1, 1},   // 80 KiB
    {96, 64, 128, 8, 4, 4, 2, 1},   // 129 KiB: not on 8.6, 8.9 and 12.x
    {96, 64, 64, 4, 2, 2, 1, 1},    // 64 KiB
    {128, 64, 128, 8, 4, 2, 2, 1},  // 161 KiB: not on 8.6, 8.9 and 12.x
    {128, 64, 64, 4, 2, 2, 1, 1},   // 80 KiB
    {192, 64, 64, 8, 2, 2, 1, 1},   // 112 KiB: not on 8.6, 8.9 and 12.x
    {192, 32, 64, 8, 4, 2, 1, 1},   // 80 KiB
    {256, 64, 64, 8, 2, 2, 1, 1},   // 144 KiB: not on 8.6, 8.9 and 12.x
    {256, 32, 32, 4, 2, 2, 1, 1},   // 68 KiB
};

// Query heads of a GQA group that share a row tile, at most: 16 tokens are left of 128 rows, as in sm90.
inline constexpr int kMostPack = 8;

// Backward: there is room for so many pieces of tiles of keys for each CTA that runs at a time.
inline constexpr int64_t kPiecesPerCta = 2;
// They are whole tiles of keys, or at most such a part of a CTA's share of the work, so that one takes little
// more than its share or a few less; and at least kLeastPiece tiles of rows.
inline constexpr double kPiecesOfShare[] = {1.1, 1.0 / 2, 1.0 / 3, 1.0 / 4};
inline constexpr int64_t kLeastPiece = 24;
// With so many whole tiles for each CTA, pieces gain nothing.
inline constexpr int64_t kManyRounds = 16;

// Backward: a plan of more pieces replaces one of fewer if it ends before this share of its time.
inline constexpr double kBetter = 0.98;
// Backward: a section of KV heads has about so many tiles of keys for each CTA, or more if the last section
// would otherwise end later than all heads together by more than this share.
inline constexpr int64_t kRoundsOfSection = 2;
inline constexpr double kSameEnd = 0.01;

// Backward, in visits of a tile of rows: an item's beginning and end, and what a piece adds to sums in
// memory.
inline constexpr double kItemEnds = 1, kPieceSums = 1.5;

// K and V of a section of heads take at most this share of L2, as in sm90.
inline constexpr int64_t kSectionL2Divisor = 2;

// Backward: what a KV head's rows move (Q, dO and the sums of dQ) is cut in segments if L2 does not hold it.
// A segment takes at most this share of L2 where the shape has enough of them. Where L2 holds it, segments
// lose up to 35 % (results/nvidia-h200/2026-11-26-portable-shapes.txt).
inline constexpr int64_t kSegmentL2Divisor = 4;

}  // namespace longspan::portable::generic
