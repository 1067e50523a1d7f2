// The portable kernels' planning: maps with turns, the order of items, shapes and what they fit.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "kernels/plan/makespan.h"
#include "kernels/portable/arrangement.h"
#include "kernels/portable/choose_shape.h"
#include "kernels/portable/tuning/generic.h"
#include "mask/lowering/lower.h"
#include "mask/patterns/patterns.h"
#include "unit/kernels/attention_case.h"

namespace longspan::portable {
namespace {

Device gpu_of(int capability) {
  Device device;
  device.kind = DeviceKind::kCuda;
  device.capability = capability;
  device.cache_bytes = 40 << 20;
  return device;
}

Mask causal(int64_t s) {
  return Mask(s, s, std::vector<Band>{{{0, s}, {0, s}, kUnboundedBelow, 0}});
}

// Every visit of a column tile has the next number, in the order of work: nobody waits for ever.
TEST(PortableMap, TurnsCountTheVisitsOfAColumnTile) {
  for (const Pattern& pattern : patterns()) {
    PatternOptions options;
    options.seqlen = 2048;
    options.kv_heads = 2;
    options.lengths = "uniform:20:400";
    if (pattern.suit_length != nullptr) pattern.suit_length(options);
    std::vector<TileMap> maps;
    for (const Mask& mask : draw_mask(pattern.name, options).masks)
      maps.push_back(lower_transposed(mask, {64, 16}));
    const KernelMap map = compile_map(maps, true);
    for (size_t m = 0; m < maps.size(); ++m) {
      std::vector<int> visits(static_cast<size_t>(maps[m].column_tiles()));
      int64_t tiles = 0, expected = 0;
      for (int32_t i = 0; i < map.items; ++i) {
        const MapRow& row = map.rows[m * static_cast<size_t>(map.items) + static_cast<size_t>(i)];
        EXPECT_EQ(row.tile, i);
        expected += maps[m].tiles[static_cast<size_t>(i)];
        for (uint32_t r = row.first_run; r < row.first_run + static_cast<uint32_t>(row.runs); ++r) {
          const MapRun& run = map.runs[r];
          for (int t = run.tile; t < run.tile + std::max(run.code, 1); ++t, ++tiles)
            ASSERT_EQ(visits[static_cast<size_t>(t)]++, run.turn) << pattern.name;
        }
      }
      EXPECT_EQ(tiles, expected) << pattern.name;
    }
  }
}

TEST(PortableMap, TurnsOfACausalMaskNeedNoMoreRuns) {
  const std::vector<TileMap> maps = {lower_transposed(causal(1 << 16), {128, 64})};
  EXPECT_EQ(compile_map(maps, true).runs.size(), compile_map(maps, false).runs.size());
}

// The pieces of all tiles visit what the tiles do, each tile once, and share a slot. Those of a segment come
// behind those of the next one, in each by descending cost.
void expect_pieces(const std::vector<TileMap>& maps, const Pieces& pieces) {
  const KernelMap map = compile_map(maps, false, pieces);
  ASSERT_EQ(map.items, map.row_tiles + pieces.most_more);
  ASSERT_EQ(map.rows.size(), maps.size() * static_cast<size_t>(map.items));
  for (size_t m = 0; m < maps.size(); ++m) {
    std::vector<std::multiset<std::pair<int, int>>> seen(static_cast<size_t>(map.row_tiles));
    std::vector<std::set<int>> slots(seen.size());
    std::vector<int> count(seen.size());
    std::pair<int, int> last = {1 << 30, 0};  // segment, cost
    for (int32_t i = 0; i < map.items; ++i) {
      const MapRow& row = map.rows[m * static_cast<size_t>(map.items) + static_cast<size_t>(i)];
      int cost = 0, segment = 0;
      for (uint32_t r = row.first_run; r < row.first_run + static_cast<uint32_t>(row.runs); ++r) {
        const MapRun& run = map.runs[r];
        for (int t = run.tile; t < run.tile + std::max(run.code, 1); ++t, ++cost) {
          seen[static_cast<size_t>(row.tile)].insert({t, std::min(run.code, 1)});
          if (pieces.segment == 0) continue;
          if (cost > 0) {
            EXPECT_EQ(t / pieces.segment, segment);
          }
          segment = t / pieces.segment;
        }
      }
      EXPECT_LE(std::pair(segment, cost), last);
      last = {segment, cost};
      if (row.tile < 0) continue;
      ++count[static_cast<size_t>(row.tile)];
      slots[static_cast<size_t>(row.tile)].insert(row.slot);
      EXPECT_EQ(row.slot >= 0, row.pieces > 1);
      EXPECT_LT(row.slot, map.slots[m]);
      EXPECT_LE(map.slots[m], pieces.most_more);
    }
    const KernelMap whole = compile_map(maps, false);
    for (int32_t i = 0; i < whole.items; ++i) {
      const MapRow& row = whole.rows[m * static_cast<size_t>(whole.items) + static_cast<size_t>(i)];
      std::multiset<std::pair<int, int>> expected;
      for (uint32_t r = row.first_run; r < row.first_run + static_cast<uint32_t>(row.runs); ++r) {
        const MapRun& run = whole.runs[r];
        for (int t = run.tile; t < run.tile + std::max(run.code, 1); ++t)
          expected.insert({t, std::min(run.code, 1)});
      }
      const auto tile = static_cast<size_t>(row.tile);
      EXPECT_EQ(seen[tile], expected);
      EXPECT_EQ(slots[tile].size(), 1u);
    }
    for (const MapRow& row : map.rows)
      if (row.tile >= 0 && maps.size() == 1) {
        EXPECT_EQ(count[static_cast<size_t>(row.tile)], row.pieces);
      }
  }
}

TEST(PortableMap, PiecesOfARowTileVisitItsTilesOnce) {
  for (const Pattern& pattern : patterns()) {
    SCOPED_TRACE(pattern.name);
    PatternOptions options;
    options.seqlen = 2048;
    options.kv_heads = 2;
    options.lengths = "uniform:20:1400";
    if (pattern.suit_length != nullptr) pattern.suit_length(options);
    std::vector<TileMap> maps;
    for (const Mask& mask : draw_mask(pattern.name, options).masks)
      maps.push_back(lower_transposed(mask, {64, 16}));
    const int columns = static_cast<int>(maps.front().column_tiles());
    const int rows = static_cast<int>(maps.front().row_tiles());
    expect_pieces(maps, {20, 10});
    expect_pieces(maps, {.most_more = 20, .tiles = 10, .in_step = true});
    expect_pieces(maps, {rows * ((columns + 39) / 40 - 1), 0, 40});
  }
}

// When each column tile is visited: the visits of its row tile before it.
std::vector<int> visits_before(const KernelMap& map, const MapRow& row, int64_t columns) {
  std::vector<int> before(static_cast<size_t>(columns), -1);
  int visits = 0;
  for (int32_t r = row.runs - 1; r >= 0; --r) {  // as Walk<-1>
    const MapRun& run = map.runs[row.first_run + static_cast<uint32_t>(r)];
    for (int t = run.tile + std::max(run.code, 1) - 1; t >= run.tile; --t)
      before[static_cast<size_t>(t)] = visits++;
  }
  return before;
}

// All CTAs that begin together visit a row of a window at the same time.
TEST(PortableMap, WindowsAreWalkedInStep) {
  for (const bool in_step : {false, true}) {
    const Mask window(8192, 8192, std::vector<Band>{{{0, 8192}, {0, 8192}, -1024, 1024}});
    const std::vector<TileMap> maps = {lower_transposed(window, {128, 8})};
    const KernelMap map = compile_map(maps, false, {.in_step = in_step});
    const int64_t columns = maps.front().column_tiles();
    std::vector<std::vector<int>> of_tile(static_cast<size_t>(map.row_tiles));
    for (const MapRow& row : map.rows)
      of_tile[static_cast<size_t>(row.tile)] = visits_before(map, row, columns);
    int most = 0, common = 0;
    for (size_t tile = 8; tile + 9 < of_tile.size(); ++tile)  // those whose window ends within the rows
      for (size_t c = 0; c < static_cast<size_t>(columns); ++c) {
        const int a = of_tile[tile][c], b = of_tile[tile + 1][c];
        if (a < 0 || b < 0) continue;
        ++common;
        most = std::max(most, std::abs(a - b));
      }
    EXPECT_GT(common, 10000);
    EXPECT_EQ(most, in_step ? 0 : 16);  // 128 keys are 16 column tiles
  }
}

BackwardArrangement backward_plan(const char* pattern, int64_t tokens, int64_t head_dim = 128) {
  Problem problem;
  problem.tokens_q = problem.tokens_kv = tokens;
  problem.heads_q = 64, problem.heads_kv = 8, problem.head_dim = head_dim;
  problem.dtype = DType::kBF16;
  PatternOptions options;
  options.seqlen = tokens;
  problem.masks = std::make_shared<const HeadMasks>(draw_mask(pattern, options).masks);
  Device gpu = gpu_of(90);
  gpu.units = 132;
  return arrange_backward(problem, choose_backward_shape(problem, gpu), gpu);
}

// Pieces of all KV heads, and the visits of the longest one.
std::pair<int64_t, int64_t> pieces_of_plan(const char* pattern, int64_t tokens, int64_t head_dim = 128) {
  const BackwardArrangement all = backward_plan(pattern, tokens, head_dim);
  int64_t pieces = 0, longest = 0;
  for (const MapRow& row : all.map.rows) {
    int64_t visits = 0;
    for (int32_t r = 0; r < row.runs; ++r)
      visits += std::max(all.map.runs[row.first_run + static_cast<uint32_t>(r)].code, 1);
    pieces += all.heads.heads_kv * (visits > 0);
    longest = std::max(longest, visits);
  }
  return {pieces, longest};
}

TEST(PortablePieces, FillTheLastRoundOfCtas) {
  EXPECT_EQ(pieces_of_plan("full", 1024), std::pair(int64_t{128}, int64_t{64}));  // one round of 132
  EXPECT_EQ(pieces_of_plan("full", 8192), std::pair(int64_t{512}, int64_t{1024}));
  EXPECT_EQ(pieces_of_plan("full", 65536), std::pair(int64_t{4096}, int64_t{8192}));
  EXPECT_EQ(pieces_of_plan("full", 2048, 64), std::pair(int64_t{256}, int64_t{128}));  // one round of 264
}

// When the last of 132 CTAs is done, if `section` KV heads are worked on together, in visits.
double end_of(const BackwardArrangement& all, int32_t section) {
  const ItemOrder order{all.heads.heads_kv, section, all.map.items};
  plan::Makespan makespan(132);
  for (int64_t i = 0; i < order.items(); ++i) {
    const MapRow& row = all.map.rows[static_cast<size_t>(order.item(i).row)];
    double visits = 0;
    for (int32_t r = 0; r < row.runs; ++r)
      visits += std::max(all.map.runs[row.first_run + static_cast<uint32_t>(r)].code, 1);
    makespan.take(visits);
  }
  return makespan.end();
}

TEST(PortableSections, AreSmallButEndTogether) {
  EXPECT_EQ(backward_plan("causal", 32768).order.section_heads, 1);
  for (const char* pattern : {"full", "causal", "causal_document", "full_document", "sliding_window"}) {
    for (const int64_t tokens : {4096, 8192, 16384, 32768}) {
      const BackwardArrangement all = backward_plan(pattern, tokens);
      EXPECT_LE(end_of(all, all.order.section_heads), 1.03 * end_of(all, 8)) << pattern << " " << tokens;
    }
  }
}

TEST(PortableOrder, TakesEachItemOnceSectionBySection) {
  for (const auto& [heads, section, tiles] : {std::tuple{8, 3, 5}, {1, 1, 1}, {4, 4, 7}, {5, 2, 1}}) {
    const ItemOrder order{heads, section, tiles};
    std::set<std::pair<int, int>> seen;
    int last_section = 0, last_row = 0;
    for (int64_t i = 0; i < order.items(); ++i) {
      const auto [row, head] = order.item(i);
      EXPECT_TRUE(seen.insert({row, head}).second);
      EXPECT_TRUE(row >= 0 && row < tiles && head >= 0 && head < heads);
      if (head / section != last_section) last_row = 0;
      EXPECT_GE(head / section, last_section);
      EXPECT_GE(row, last_row);
      last_section = head / section, last_row = row;
    }
    EXPECT_EQ(seen.size(), static_cast<size_t>(heads * tiles));
  }
}

TEST(PortableShape, EachHeadDimHasOneOnEachGpu) {
  for (const int capability : {80, 86, 87, 89, 90, 100, 103, 120, 121}) {
    for (int64_t head_dim = 8; head_dim <= 256; head_dim += 8) {
      const Problem problem = make_problem(causal(8), 1, 1, head_dim, DType::kBF16);
      ASSERT_EQ(unsupported_problem(problem), "");
      const ForwardShape forward = choose_forward_shape(problem, gpu_of(capability));
      const BackwardShape backward = choose_backward_shape(problem, gpu_of(capability));
      EXPECT_GE(forward.head_dim, head_dim);
      EXPECT_GE(backward.head_dim, head_dim);
      EXPECT_LE(forward.shared_bytes(), most_shared_bytes(capability));
      EXPECT_LE(backward.shared_bytes(), most_shared_bytes(capability));
    }
  }
}

TEST(PortableShape, PacksAPowerOfTwoOfHeads) {
  for (const auto& [group, pack] : {std::pair{1, 1}, {2, 2}, {3, 1}, {6, 2}, {8, 8}, {12, 4}, {16, 8}})
    EXPECT_EQ(choose_pack(make_problem(causal(8), 2 * group, 2, 64, DType::kBF16)), pack) << group;
}

TEST(PortableSupport, SaysWhatItNeeds) {
  const auto reason = [](int64_t head_dim, DType dtype, float scale = 0) {
    Problem problem = make_problem(causal(8), 1, 1, head_dim, dtype);
    problem.scale = scale;
    return unsupported_problem(problem);
  };
  EXPECT_EQ(reason(128, DType::kF32), "needs bf16 or f16");
  EXPECT_EQ(reason(264, DType::kF16), "needs head_dim a multiple of 8 up to 256, not 264");
  EXPECT_EQ(reason(12, DType::kBF16), "needs head_dim a multiple of 8 up to 256, not 12");
  EXPECT_EQ(reason(64, DType::kBF16, -1), "needs a positive scale");
  Problem problem = make_problem(causal(8), 1, 1, 64, DType::kBF16);
  problem.tokens_q = int64_t{1} << 31;
  EXPECT_EQ(unsupported_problem(problem), "has 32-bit tile numbers: too many tokens or heads");
}

// Plans of equal sizes differ in the map only, so that a captured graph can be given another one.
TEST(PortablePlan, LaunchesDependOnSizesOnly) {
  for (const bool deterministic : {false, true}) {
    Problem a = make_problem(causal(1000), 8, 2, 64, DType::kBF16);
    a.deterministic = deterministic;
    Problem b = a;
    b.set_mask(Mask(1000, 1000, std::vector<Band>{{{0, 10}, {0, 10}}}));
    const Device gpu = gpu_of(90);
    const BackwardArrangement backward_a = arrange_backward(a, choose_backward_shape(a, gpu), gpu);
    const BackwardArrangement backward_b = arrange_backward(b, choose_backward_shape(b, gpu), gpu);
    EXPECT_EQ(backward_a.order.items(), backward_b.order.items());
    EXPECT_EQ(backward_a.workspace.bytes, backward_b.workspace.bytes);
    EXPECT_EQ(backward_a.query_tiles, backward_b.query_tiles);
    EXPECT_EQ(arrange_forward(a, choose_forward_shape(a, gpu), gpu).order.items(),
              arrange_forward(b, choose_forward_shape(b, gpu), gpu).order.items());
  }
}

}  // namespace
}  // namespace longspan::portable
