// The block size to which a mask's bands are aligned.
#include "mask/block_alignment.h"

#include <vector>

#include <gmock/gmock.h>

namespace longspan {
namespace {

Mask mask_of(int64_t rows, int64_t columns, const std::vector<Band>& bands) {
  return Mask(rows, columns, bands);
}

const std::vector<Band> kBlocks64 = {{{0, 64}, {64, 192}}, {{64, 200}, {0, 128}}};
const std::vector<Band> kBlocks256 = {{{0, 256}, {256, 512}}, {{256, 512}, {0, 256}}};

TEST(BlockAlignment, IsTheLargestSizeThatDividesAllEdges) {
  EXPECT_EQ(block_alignment({mask_of(200, 256, kBlocks64)}, 64, 128), 64);
  EXPECT_EQ(block_alignment({mask_of(512, 512, kBlocks256)}, 64, 128), 128);
  EXPECT_EQ(block_alignment({mask_of(512, 512, kBlocks256)}, 64, 1024), 256);
}

TEST(BlockAlignment, IsThatOfTheFinestMask) {
  EXPECT_EQ(block_alignment({mask_of(512, 512, kBlocks256), mask_of(200, 512, kBlocks64)}, 64, 128), 64);
}

// Above, the blocks end with the mask. Here 200 is an edge.
TEST(BlockAlignment, IsFinerIfNoneOfTheSizesFits) {
  EXPECT_EQ(block_alignment({mask_of(300, 256, kBlocks64)}, 64, 128), 8);
}

TEST(BlockAlignment, IsOneWithoutBlocks) {
  EXPECT_EQ(block_alignment({mask_of(128, 128, {{{0, 64}, {0, 64}}})}, 64, 128), 1);
  const std::vector<Band> causal = {{{0, 64}, {0, 64}, kUnboundedBelow, 0}, {{64, 128}, {0, 64}}};
  EXPECT_EQ(block_alignment({mask_of(128, 128, causal)}, 64, 128), 1);
}

}  // namespace
}  // namespace longspan
