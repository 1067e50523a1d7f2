// sm90's backward pass with passes inside the kernel, and with additions to dq in the order of a simulated
// run, against the fp64 oracle and run after run. Each problem first asserts that its plan is of that kind:
// by the planner's choice or, if it is too small for that, in a given shape.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>

#include "attention/oracle/verify.h"
#include "backward_in_shape.h"
#include "hopper.h"
#include "kernels/sm90/backward/planner/arrangement.h"
#include "mask/patterns/patterns.h"
#include "output_bytes.h"

namespace longspan {
namespace {

using sm90::BackwardArrangement;
using sm90::BackwardShape;
using sm90::BackwardStore;

HeadMasks drawn(const char* pattern, int64_t seqlen, const char* lengths = "auto") {
  PatternOptions options;
  options.seqlen = seqlen;
  options.lengths = lengths;
  return draw_mask(pattern, options).masks;
}

// Documents of `rows` rows, each of which sees its proportional share of `columns` keys. Every fifth document
// sees no key, and no row sees its keys.
HeadMasks documents_with_holes(int64_t rows, int64_t columns, int64_t documents) {
  std::vector<Band> bands;
  for (int64_t d = 0; d < documents; ++d)
    if (d % 5 != 3)
      bands.push_back({{rows * d / documents, rows * (d + 1) / documents},
                       {columns * d / documents, columns * (d + 1) / documents}});
  return {Mask(rows, columns, bands)};
}

std::string name_of_problem(const Problem& p) {
  return std::to_string(p.tokens_q) + " x " + std::to_string(p.tokens_kv) + ", heads " +
         std::to_string(p.heads_q) + ":" + std::to_string(p.heads_kv) + ", head_dim " +
         std::to_string(p.head_dim) + ", " + std::string(name_of(p.dtype));
}

// Twice: the first run must leave the counters as they were.
void expect_right(Plan& plan, const Problem& problem) {
  for (int run = 0; run < 2; ++run)
    EXPECT_EQ(verify(plan, problem, Direction::kBackward, first_gpu(), {}).failure, "") << "run " << run;
}

// Pass CTAs prepare one section and finish another while other CTAs compute.
void expect_right_with_passes_inside(const Problem& problem, const BackwardShape& shape) {
  SCOPED_TRACE(name_of_problem(problem));
  const BackwardArrangement all = sm90::arrange_backward(problem, shape, first_gpu().units);
  ASSERT_GT(all.pass_ctas, 0);
  ASSERT_GT(all.last_section, 1);
  BackwardInShape plan(problem, shape, first_gpu());
  expect_right(plan, problem);
}

TEST(Sm90Passes, AreRightWhereThePlanLeavesThemToPassCtas) {
  LONGSPAN_NEEDS_HOPPER();
  const std::vector<Problem> problems{
      problem_of(drawn("causal_document", 8191), 64, 8),
      problem_of(drawn("causal_document", 8129), 64, 8, 128, DType::kF16),
      problem_of(drawn("causal_document", 16411), 40, 8),
      problem_of(drawn("share_question", 9001), 64, 8),
      problem_of(drawn("causal_blockwise", 8191), 48, 16, 128, DType::kF16),
      problem_of(drawn("prefix_lm_document", 16385), 64, 8),
      problem_of(drawn("full_document", 32769, "uniform:600:1000"), 64, 8),
      problem_of(drawn("sliding_window_causal", 8191), 64, 8),
      problem_of(drawn("sliding_window", 16001), 64, 8, 128, DType::kF16),
      problem_of(documents_with_holes(16001, 15001, 21), 64, 8),
      problem_of(documents_with_holes(15001, 16001, 19), 64, 8),
  };
  for (const Problem& problem : problems)
    expect_right_with_passes_inside(problem, sm90::choose_backward_shape(problem));
}

// Lengths with every number of rows in the last tile's warps, rows and keys without partners, and both ways
// to make the first addition; three heads, each a separate section.
TEST(Sm90Passes, AreRightInSmallProblems) {
  LONGSPAN_NEEDS_HOPPER();
  std::vector<HeadMasks> masks{drawn("causal_document", 333, "uniform:10:90"),
                               documents_with_holes(1000, 700, 23), documents_with_holes(300, 900, 9),
                               drawn("full_document", 65, "uniform:1:20")};
  for (int64_t rows = 120; rows <= 129; ++rows) masks.push_back(documents_with_holes(rows, 100, 6));
  for (const HeadMasks& mask : masks)
    for (const BackwardStore store : {BackwardStore::kAdded, BackwardStore::kClaimed})
      for (const int64_t head_dim : {64, 128})
        for (const DType dtype : {DType::kBF16, DType::kF16}) {
          const Problem problem = problem_of(mask, 6, 3, head_dim, dtype);
          BackwardShape shape = sm90::choose_backward_shape(problem);
          shape.in_rows = shape.aligned = true;
          shape.rows = 64, shape.keys = 128;
          shape.store = store;
          shape.pass_ctas = 3;
          shape.section_units = 1;
          shape.split = sm90::arrange_backward(problem, shape, first_gpu().units).split;
          shape.split->last_rounds = 0;
          expect_right_with_passes_inside(problem, shape);
        }
}

// Several rounds of items, some of which are left when the passes are done.
TEST(Sm90Passes, AreRightWherePassCtasTakeItems) {
  LONGSPAN_NEEDS_HOPPER();
  for (const Problem& problem : {problem_of(drawn("full_document", 32769, "uniform:600:1000"), 64, 8),
                                 problem_of(drawn("causal_document", 8129), 64, 8, 128, DType::kF16),
                                 problem_of(documents_with_holes(16001, 15001, 21), 64, 8)})
    for (const BackwardStore store : {BackwardStore::kAdded, BackwardStore::kClaimed})
      for (const int blocks : {6, 40}) {
        BackwardShape shape = sm90::choose_backward_shape(problem);
        shape.store = store;
        shape.pass_ctas = blocks;
        expect_right_with_passes_inside(problem, shape);
      }
}

// dq of row tiles that one key tile comes to, of all numbers of rows, beside others; and of several masks.
TEST(Sm90Backward, WritesDqOfRowTilesThatOneKeyTileComesTo) {
  LONGSPAN_NEEDS_HOPPER();
  std::vector<HeadMasks> masks{drawn("causal_document", 1333, "uniform:10:290"),
                               drawn("full_document", 777, "uniform:1:90"),
                               documents_with_holes(1000, 700, 23)};
  masks.push_back({documents_with_holes(500, 400, 7).front(), documents_with_holes(500, 400, 9).front()});
  masks.push_back({Mask(2500, 2500, {{.q = {0, 2500}, .k = {0, 2500}, .lo = -40, .hi = 0}})});
  for (int64_t rows = 120; rows <= 129; ++rows) masks.push_back(documents_with_holes(rows, 100, 6));
  for (const HeadMasks& mask : masks)
    for (const int64_t head_dim : {64, 128})
      for (const DType dtype : {DType::kBF16, DType::kF16}) {
        const Problem problem = problem_of(mask, 8, 2, head_dim, dtype);
        SCOPED_TRACE(name_of_problem(problem));
        BackwardShape shape = sm90::choose_backward_shape(problem);
        shape.in_rows = shape.aligned = true;
        shape.rows = 64, shape.keys = head_dim == 64 && dtype == DType::kBF16 ? 192 : 128;
        shape.store = BackwardStore::kClaimed;
        shape.pass_ctas = 0;
        ASSERT_FALSE(sm90::arrange_backward(problem, shape, first_gpu().units).visited_once.empty());
        BackwardInShape plan(problem, shape, first_gpu());
        expect_right(plan, problem);
      }
}

// All heads of an item at a row tile, from the last one up, with dq summed in the order in which CTAs come.
TEST(Sm90Backward, GoesByRowsInShortCausalDocuments) {
  LONGSPAN_NEEDS_HOPPER();
  for (const char* pattern : {"causal_document", "prefix_lm_document"})
    for (const auto& [heads_q, heads_kv] : {std::pair<int64_t, int64_t>{8, 1}, {24, 8}, {20, 4}})
      for (const int64_t head_dim : {64, 128})
        for (const DType dtype : {DType::kBF16, DType::kF16}) {
          const Problem problem =
              problem_of(drawn(pattern, 3001, "uniform:130:500"), heads_q, heads_kv, head_dim, dtype);
          SCOPED_TRACE(name_of_problem(problem));
          BackwardShape shape = sm90::choose_backward_shape(problem);
          ASSERT_EQ(shape.store, BackwardStore::kClaimed);
          shape.split = sm90::arrange_backward(problem, shape, first_gpu().units).split;
          shape.split->parts = 1, shape.split->most_tiles = 0;
          shape.split->walk = {.descending = true, .by_rows = true};
          BackwardInShape plan(problem, shape, first_gpu());
          expect_right(plan, problem);
        }
}

// The tiles of head_dim 64, with all ways to add dq, in items of all and of some of the query heads. Lengths
// leave the last part of a tile without rows or keys, or with some.
TEST(Sm90LargestTiles, AreRightForAnyMask) {
  LONGSPAN_NEEDS_HOPPER();
  using enum BackwardStore;
  std::vector<HeadMasks> masks{drawn("causal_document", 1333, "uniform:10:290"),
                               drawn("causal", 1999),
                               drawn("causal", 1),
                               documents_with_holes(1000, 700, 23),
                               documents_with_holes(300, 900, 9),
                               drawn("sliding_window", 2500)};
  for (const int64_t rows : {64, 65, 128, 129, 191, 193}) {
    masks.push_back(documents_with_holes(rows, 100, 3));
    masks.push_back(documents_with_holes(100, rows, 3));
  }
  struct Instance {
    int rows, keys;
    BackwardStore store;
    bool in_rows;
  };
  for (const HeadMasks& mask : masks)
    for (const auto& [rows, keys, store, in_rows] :
         {Instance{128, 128, kAdded, false}, Instance{128, 128, kClaimed, false},
          Instance{128, 128, kClaimed, true}, Instance{64, 192, kAdded, false},
          Instance{64, 192, kAdded, true}, Instance{64, 192, kClaimed, true}})
      for (const int parts : {1, 2}) {
        const Problem problem = problem_of(mask, 8, 2, 64, DType::kBF16);
        SCOPED_TRACE(name_of_problem(problem));
        BackwardShape shape = sm90::choose_backward_shape(problem);
        shape.rows = rows, shape.keys = keys;
        shape.in_rows = shape.aligned = in_rows;
        shape.store = store;
        shape.split = sm90::arrange_backward(problem, shape, first_gpu().units).split;
        shape.split->parts = parts;
        BackwardInShape plan(problem, shape, first_gpu());
        expect_right(plan, problem);
      }
}

// Items of the last KV heads, or of all, are cut by rows; the others' key tiles have no sums of dk and dv.
TEST(Sm90CutItems, AreRightForAnyMask) {
  LONGSPAN_NEEDS_HOPPER();
  const std::vector<HeadMasks> masks{drawn("full", 1000), drawn("causal", 1999),
                                     drawn("causal_document", 1333, "uniform:10:290"),
                                     documents_with_holes(1000, 700, 23), drawn("full", 65)};
  for (const HeadMasks& mask : masks)
    for (const int64_t head_dim : {64, 128, 256})
      for (const int64_t heads_kv : {1, 3})
        for (const int32_t parts : {1, 2})
          for (const int32_t pieces : {2, 5}) {
            const Problem problem = problem_of(mask, 2 * heads_kv, heads_kv, head_dim, DType::kBF16);
            SCOPED_TRACE(name_of_problem(problem));
            BackwardShape shape = sm90::choose_backward_shape(problem);
            shape.pass_ctas = 0;
            shape.section_units = 1;
            shape.split = sm90::BackwardSplit{.parts = parts, .last_rounds = 0, .last_pieces = pieces};
            BackwardInShape plan(problem, shape, first_gpu());
            expect_right(plan, problem);
          }
}

void expect_right_and_the_same(const Problem& problem, const BackwardShape& shape, int repeats) {
  BackwardInShape plan(problem, shape, first_gpu());
  ProblemTensors tensors(problem, Direction::kBackward, first_gpu(), plan);
  tensors.fill_inputs(1);
  tensors.forward(plan);
  const std::vector<char> first = gradient_bytes(plan, tensors);
  for (int repeat = 0; repeat < repeats; ++repeat)
    ASSERT_EQ(gradient_bytes(plan, tensors), first) << "repeat " << repeat;
  expect_right(plan, problem);
}

// Two streams of a CTA add dq in order, from tiles of 64 keys: in the order of items or of a simulated run.
TEST(Sm90OrderedStreams, AreRightForAnyMask) {
  LONGSPAN_NEEDS_HOPPER();
  const std::vector<HeadMasks> masks{
      drawn("full", 700),
      drawn("causal", 333),
      drawn("causal", 64),
      drawn("causal_document", 1500, "uniform:30:300"),
      drawn("sliding_window", 1000),
      documents_with_holes(1000, 700, 23),
      documents_with_holes(129, 100, 6),
  };
  for (const HeadMasks& mask : masks)
    for (const bool by_time : {false, true})
      for (const bool by_rows : {false, true})
        for (const int64_t head_dim : {64, 128}) {
          Problem problem = problem_of(mask, 6, 3, head_dim, head_dim == 64 ? DType::kF16 : DType::kBF16);
          problem.deterministic = true;
          SCOPED_TRACE(name_of_problem(problem) + (by_time ? ", by time" : "") +
                       (by_rows ? ", by rows" : ""));
          BackwardShape shape = sm90::choose_backward_shape(problem);
          shape.in_rows = shape.aligned = false;
          shape.rows = shape.keys = 64;
          shape.split = sm90::BackwardSplit{.parts = by_rows ? 1 : 2,
                                            .walk = {.descending = by_rows, .by_rows = by_rows},
                                            .by_time = by_time};
          const int streams = sm90::arrange_backward(problem, shape, first_gpu().units).schedule.streams;
          ASSERT_EQ(streams > 0, by_time);
          expect_right_and_the_same(problem, shape, 10);
        }
}

// One mask for each head and one for all, block-sparse masks of every kind, and documents with few items.
TEST(Sm90Schedule, GivesTheSameGradientsEveryTime) {
  LONGSPAN_NEEDS_HOPPER();
  struct Case {
    const char* name;
    int64_t seqlen, block, masks, heads_q, heads_kv, head_dim;
  };
  for (const Case& c : {Case{"uniform_block_sparse", 6000, 64, 4, 8, 4, 128},
                        Case{"uniform_block_sparse", 6001, 64, 4, 4, 4, 128},
                        Case{"uniform_block_sparse", 6000, 64, 1, 8, 4, 128},
                        Case{"uniform_block_sparse", 6000, 64, 2, 8, 2, 64},
                        Case{"uniform_block_sparse", 6001, 128, 4, 4, 4, 128},
                        Case{"uniform_block_sparse", 6000, 128, 1, 8, 4, 128},
                        Case{"variable_block_sparse", 6000, 256, 4, 8, 4, 128},
                        Case{"causal_blockwise", 4096, 0, 1, 64, 8, 128}}) {
    SCOPED_TRACE(std::string(c.name) + ", block " + std::to_string(c.block));
    PatternOptions options;
    options.seqlen = c.seqlen;
    options.kv_heads = c.masks;
    if (c.block > 0) options.values.set("block", c.block).set("density", 0.3);
    Problem problem = problem_of(draw_mask(c.name, options).masks, c.heads_q, c.heads_kv, c.head_dim);
    problem.deterministic = true;
    const BackwardShape shape = sm90::choose_backward_shape(problem);
    ASSERT_GT(sm90::arrange_backward(problem, shape, first_gpu().units).schedule.streams, 0);
    ASSERT_EQ(shape.keys, c.block == 64 ? 64 : 128);
    expect_right_and_the_same(problem, shape, 200);
  }
}

}  // namespace
}  // namespace longspan
