// The constants by which sm90's planners choose, as measured on the NVIDIA H200 (132 SMs). A planner has no
// figure of its own. Each group names its source: "forward, version 12" is that heading of
// docs/lab/2026-11-sm90-forward.md, "backward, version 36" that of docs/lab/2026-11-sm90-backward.md; the
// notebooks name the result files. Another GPU takes a copy of this file and measures it anew.
#pragma once

#include <cstdint>

// Units: "tiles" is the time of one tile's products, "rounds" is items of whole GQA groups for each CTA.

namespace longspan::sm90::h200 {

// Blocks of the finest size have tiles of their own; multiples of the largest need no finer tiles.
inline constexpr int64_t kFinestBlock = 64, kLargestBlock = 128;

namespace forward {

// Instances for dense masks: warpgroups of 64 rows, keys, and a tile's time over that of the head_dim's first
// one; kEvenTime is that of even row tiles. Forward, versions 27 and 28.
struct DenseTile {
  int head_dim, warpgroups, columns;
  double time;
};
inline constexpr DenseTile kDenseTiles[] = {{128, 3, 80, 1},    {128, 2, 128, 1.18}, {64, 4, 64, 1},
                                            {64, 2, 128, 1.15}, {64, 3, 128, 1.46},  {192, 3, 80, 1},
                                            {256, 2, 80, 1}};
inline constexpr double kEvenTime = 1.02;
// What an item costs beside its tiles (version 28). Blocks from which on row tiles follow them wherever they
// are as high as two (version 31); items of each SM that are simulated; most tokens of the first tile, if it
// has to suit all masks: not varied.
inline constexpr int64_t kItemSteps = 8, kManyBlocks = 4, kSimulated = 8, kSameLaunchesTokens = 64;

// From mean blocks of so many rows and keys on, a mask of head_dim 64 is dense: forward, version 20.
inline constexpr int64_t kLongBlock = 512;

// Query heads of a GQA group that share a row tile, at most: 128 rows are 16 tokens. Forward, "Shape".
inline constexpr int64_t kMaxPack = 8;

// K and V of a section of heads take at most this share of L2: forward, versions 11 and 17.
inline constexpr double kSectionL2Share = 0.6;
// If all rows see the same keys, a section is all KV heads if K and V take at most this share of L2, else
// one: forward, versions 19 and 25.
inline constexpr double kSectionL2ShareOfAlike = 0.15;
// Row tiles above this share of an SM's part of a section come first: forward, versions 11 and 18.
inline constexpr int64_t kHeavyNumerator = 3, kHeavyDenominator = 4;

}  // namespace forward

namespace backward {

// ---- tile shape and dQ accumulation ---------------------------------------------------------------------

// Rows that see a mean key: from so many on, items of one query head are long enough, and zeros cost less
// than claims. Backward, versions 5 and 36.
inline constexpr int64_t kLongColumn = 2048;
// From the first on, two items' heads are worked on together if L2 holds their rows; from the second on,
// tiles of one band may have 80 rows. Backward, versions 36, 37, 57 and 75.
inline constexpr int64_t kVeryLongColumn = 4096, kTallColumn = 1024;
inline constexpr int kTallRows = 80, kVeryLongSectionUnits = 2, kScatteredSectionUnits = 1;
// Tiles of so many rows or keys at this head_dim. Backward, versions 51 and 59.
inline constexpr int kTallestRows = 128, kWidestKeys = 192;
inline constexpr int64_t kLargestTilesHeadDim = 64;

// The tiles between which the simulated time decides, and the time of each over that of the first one.
// Backward, versions 75 and 77.
struct Tile {
  int head_dim, rows, keys;
  double time;
};
inline constexpr Tile kTiles[] = {
    {128, 64, 128, 1}, {128, 80, 128, 1.17}, {64, 64, 192, 0.84}, {64, 128, 128, 1.13}, {64, 64, 128, 0.7}};

// The share of row tiles that one key tile comes to, from which on that tile's CTA writes dq: backward,
// version 63.
inline constexpr double kLeastVisitedOnce = 1.0 / 16;
// Shares of all pairs that are visible: from the first on, short masks add to zeros, but one band that L2
// does not hold from the second on, as blocks of 64 take tiles of 128 keys (versions 34, 36, 41, 67).
inline constexpr double kHalfVisible = 0.5, kMostlyVisible = 0.75;

// Tiles begin at edges of bands of so many tokens, where that is cheaper; what a partial tile costs beyond a
// full one. Chosen with backward, version 13, not varied.
inline constexpr int64_t kEdgeMinTokens = 128;
inline constexpr double kPartialTileCost = 0.1;

// ---- order ----------------------------------------------------------------------------------------------

// CTAs that work on one head: with more they wait for each other's additions, with fewer each row comes from
// device memory more often. Backward, version 8.
inline constexpr int64_t kCtasOfHead = 16;

// Tile visits of all heads, up to which additions follow a simulated run: half a second of planning, 64 MiB
// of turns. Backward, versions 40 and 42.
inline constexpr int64_t kMaxScheduledVisits = int64_t{16} << 20;

// A candidate replaces the best one so far if its simulated time is less than this share; by time the
// simulation knows more, and the second one holds. Backward, versions 34 and 40.
inline constexpr double kBetter = 0.98, kBetterByTime = 0.99;

// Simulation of items, in tiles: an item's beginning and end, and the addition of a part's dk and dv; if
// additions are in order, from one CTA's addition to the next one's. Backward, versions 33 and 53.
inline constexpr double kHandOver = 0.5, kItemEnds = 2.5, kPartSums = 1.5, kOrderedPartSums = 2;

// Simulation of additions by time, in 1/16 of a tile's time. Hand-over and distance of visits to the same
// rows, for CTAs and for two streams in a CTA: backward, versions 40, 42 and 46. An item's beginning and end,
// and a part's sums: as above.
inline constexpr int32_t kTicksOfTile = 16;
inline constexpr int32_t kHandOverTicks = 3 * kTicksOfTile / 2,
                         kHandOverTicksOfStreams = 3 * kTicksOfTile / 4;
inline constexpr int32_t kApartTicks = 3 * kTicksOfTile, kApartTicksOfStreams = 7 * kTicksOfTile / 4;
inline constexpr int32_t kItemEndsTicks = 5 * kTicksOfTile / 2, kPartSumsTicks = 2 * kTicksOfTile;
inline constexpr int kMaxRunsLookedAt = 32;  // of an item, to find one whose rows nobody has visited of late

// ---- CTAs for the passes: backward, versions 39, 47 to 49 and 61 ----------------------------------------

inline constexpr double kPassBytesPerCycle = 45;         // that one CTA moves while the others compute
inline constexpr double kPassBytesPerCycleAlone = 3000;  // that kernels of their own move (version 75)
inline constexpr double kTileCycles = 3500;              // of a tile, with its share of an item's ends
// With fewer sections, items of one or (version 71) tiles for each CTA, others wait too long for the passes.
inline constexpr int64_t kPassMinSections = 3, kPassMinTiles = 40;
inline constexpr double kPassMinItems = 0.75;

// ---- the split of key tiles into items: backward, versions 29, 34, 47, 53 and 65 ------------------------

inline constexpr int64_t kMinTilesOfItem = 24;
inline constexpr double kFewRounds = 1.5, kSomeRounds = 3, kManyRounds = 8;
// Rounds in which the last KV heads are worked on together, so that all CTAs end at the same time. Long
// columns have candidates of fewer, whose rows L2 holds; one of more rounds must take less than this share of
// the time of the same items with fewer: backward, "The last section and L2" and version 62.
inline constexpr int kLastRounds = 2;
inline constexpr double kBetterByRounds = 0.99;
// Long columns: candidates cut the last KV heads' items by rows into so many pieces of kMinTilesOfItem tiles
// or more, so many for each CTA at most. Odd, since 64, 94 or 128 items leave CTAs idle (version 58).
inline constexpr int32_t kLastPieces[] = {5, 7}, kMostCutItems = 16;

// In causal documents key tiles begin in more row tiles than they end in, by this ratio at least (version
// 64). The share of light items in the last section's tiles (version 65).
inline constexpr int64_t kStairBegins = 3, kStairEnds = 2;
inline constexpr double kLightShare = 0.25;
// Candidates of short columns: items for each CTA, at most, and tiles of an item, at most (0: no limit).
inline constexpr double kMostRounds = 16;
// Rounds before the last section that are simulated: all if there are few.
inline constexpr int64_t kRoundsSimulated = 2, kFewRoundsBefore = 8;
inline constexpr int64_t kMostTiles[] = {0, 160, 120, 80};
// Elements of q of the heads in work that L2 holds beside do and dq.
inline constexpr double kRowsInL2 = 7.5e6;
// The share of the time that each doubling of an item's heads costs. Items by keys: less in windows, in
// causal documents as much again, but kMostOfStairs at most; these go by rows from kByRows doublings on
// (versions 76 and 77). Others, if they differ in length: also that which rows of twice kFreeRows elements
// cost, of q of the heads in work (versions 53 and 67).
inline constexpr double kDrift = 0.015, kDriftOfWindows = 0.005, kMostOfStairs = 0.015, kByRows = 1.8;
inline constexpr double kUnevenDrift = 0.01, kFreeRows = 5e6, kSpilled = 0.13;

// Deterministic items: tiles of one band's item; parts of a key tile wait for each other, so documents have
// long ones (versions 32, 34 and 39).
inline constexpr int64_t kOrderedBandMaxTiles = 160, kOrderedDocumentsMaxTiles = 640,
                         kOrderedDocumentsTiles = 160;
inline constexpr int kOrderedLastRounds = 4;
// Long masks, and documents whose last rows see every key: KV heads that are worked on together. Long
// masks: items for each CTA, at most, elements of q that each half of L2 holds beside do and dq, and what a
// visit to rows that it does not hold costs, in tiles (versions 56 and 77).
inline constexpr int kOrderedHeads = 2;
inline constexpr double kOrderedMostRounds = 32;
inline constexpr double kReusedRows = 3.75e6, kMissedRows = 0.4;
// Blocks go by time. With fewer runs a mean key tile than this, or with several heads an item, they do so up
// to kFewVisits visits of all heads (versions 40 and 77).
inline constexpr int64_t kOrderedMinRuns = 5, kFewVisits = int64_t{1} << 20;

}  // namespace backward

}  // namespace longspan::sm90::h200
