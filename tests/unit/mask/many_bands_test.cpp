// Masks with enough bands to divide the lists into stripes and chunks.
#include <gtest/gtest.h>

#include "mask/lowering/lower.h"
#include "mask/patterns/patterns.h"

namespace longspan {
namespace {

constexpr int64_t kTokens = 2048;

// Random blocks of 4 x 2 tokens. Every third one has a diagonal bound; its other half is then a separate
// band.
Mask many_bands() {
  Mt19937 generator(1);
  std::vector<Band> bands;
  for (int64_t i = 0; i < kTokens; i += 4)
    for (int64_t j = 0; j < kTokens; j += 2) {
      const int64_t kind = generator.randbelow(3);
      const Band block{{i, i + 4}, {j, j + 2}};
      if (kind == 1) bands.push_back(block);
      if (kind != 2) continue;
      bands.push_back({block.q, block.k, kUnboundedBelow, j - i - 1});
      bands.push_back({block.q, block.k, j - i, kUnboundedAbove});
    }
  return Mask(kTokens, kTokens, bands);
}

// Visible keys per row of a tile map, summed over its runs.
std::vector<int64_t> counts_of(const TileMap& map) {
  std::vector<int64_t> counts(static_cast<size_t>(map.rows));
  for (int64_t t = 0; t < map.row_tiles(); ++t)
    for (const Run& run : map.runs_of(t))
      for (int64_t i = 0; i < map.shape.rows && t * map.shape.rows + i < map.rows; ++i) {
        int64_t& count = counts[t * map.shape.rows + i];
        if (run.full()) {
          const int64_t begin = int64_t{run.tile} * map.shape.columns;
          count += std::min(begin + int64_t{run.count()} * map.shape.columns, map.columns) - begin;
          continue;
        }
        const Partial& partial = map.partials.at(run.partial());
        for (int32_t n = 0; n < partial.layers; ++n) {
          const Span span = map.layer(partial.first + n)[i];
          count += span.end - span.begin;
        }
      }
  return counts;
}

void check(const Mask& mask) {
  ASSERT_GT(mask.bands().size(), 200000u);
  const Mask transposed = mask.transposed();
  EXPECT_EQ(transposed.area(), mask.area());
  EXPECT_TRUE(transposed.transposed() == mask);
  EXPECT_TRUE(Mask(transposed.rows(), transposed.columns(), transposed.bands()) == transposed);
  std::vector<int64_t> column_counts(static_cast<size_t>(mask.columns()));
  for (int64_t i = 0; i < mask.rows(); ++i) {
    const auto keys = mask.visible_keys(i);
    for (const Range& range : keys)
      for (int64_t j = range.begin; j < range.end; ++j) ++column_counts[j];
    if (i % 97 == 0)
      for (const Range& range : keys) EXPECT_TRUE(transposed.visible(range.begin, i));
  }
  EXPECT_EQ(transposed.visible_counts(), column_counts);
  for (const TileShape shape : {TileShape{1, 1}, {3, 2}, {128, 128}}) {
    EXPECT_EQ(counts_of(lower(mask, shape)), mask.visible_counts()) << shape.rows;
    EXPECT_EQ(counts_of(lower(transposed, shape)), column_counts) << shape.rows;
  }
}

TEST(ManyBands, OfMixedKinds) {
  check(many_bands());
}

TEST(ManyBands, OfBlocks) {
  PatternOptions options;
  options.seqlen = kTokens;
  options.values.set("block", 2);
  options.values.set("density", 0.4);
  check(draw_mask("uniform_block_sparse", options).masks[0]);
}

TEST(ManyBands, OfOneToken) {
  PatternOptions options;
  options.seqlen = 1024;
  options.values.set("block", 1);
  options.values.set("density", 0.3);
  check(draw_mask("uniform_block_sparse", options).masks[0]);
}

}  // namespace
}  // namespace longspan
