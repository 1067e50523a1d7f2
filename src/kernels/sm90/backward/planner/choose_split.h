// How the backward pass' work is divided into items, and in what order these are handed out. Pure rules, of
// the problem and of what its tile map's columns are like. Host code without CUDA.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/problem.h"
#include "kernels/sm90/backward/planner/walk.h"

namespace longspan::sm90 {

struct BackwardShape;

// In which order key tiles are handed out.
enum class KeyOrder : uint8_t { kOfMap, kByKeys, kFromLastKey, kHeaviestFirst, kLightestFirst };

struct BackwardDivision {
  int32_t parts = 1;  // items of a key tile, a divisor of the group, or more where one would be too long:
  int64_t most_tiles = 0;  // of an item; 0: any number
  KeyOrder order = KeyOrder::kOfMap;
  int32_t group_items = 0;  // as BackwardSharing has it
  int32_t last_rounds = 4;  // items of the last KV heads for each block, so that all blocks end together
  int32_t kv_heads = 1;     // that are worked on together, or more as it suits the GPU
  BackwardWalk walk{};
  bool by_time = false;  // additions are in the order of a simulated run (backward_schedule.h)
  friend bool operator==(const BackwardDivision&, const BackwardDivision&) = default;
};

// What the columns of a tile map are like, in row tiles that key tiles visit; of a mean mask.
struct BackwardColumns {
  int64_t key_tiles = 0;
  int64_t tiles = 0;       // of all of them
  int64_t runs = 0;        // of such tiles, one after the other
  int64_t longest = 0;     // of one
  int64_t full_first = 0;  // of those that begin with a run of at least kShortRun full ones
  // Key tiles that begin with the first row tile of all, and that end with the last one.
  int64_t begin_together = 0, end_together = 0;
};
// The map's tiles have `rows` queries.
BackwardColumns columns_of(const CompiledMap& map, int32_t rows, int64_t masks);

inline constexpr int kShortRun = 4;
// Blocks that work on neighbouring key tiles of a head meet the same rows of q, do and dq at about the same
// time, and find them in L2. With more than some 16 of them they wait for each other's additions; with fewer,
// each row comes from memory more often.
inline constexpr int64_t kBlocksOfHead = 16;

// Visits to tiles, of all heads, up to which additions are in the order of a simulated run: a second of
// planning, 64 MiB of turns and twice as much of runs, at most.
inline constexpr int64_t kMostScheduled = int64_t{16} << 20;

// The ways that suit; if there are several, additions are in order and a simulation is to choose.
std::vector<BackwardDivision> choose_divisions(const Problem& problem, const BackwardShape& shape,
                                               const BackwardColumns& columns, int64_t workers);

}  // namespace longspan::sm90
