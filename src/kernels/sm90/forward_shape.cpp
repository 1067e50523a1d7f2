#include "kernels/sm90/forward_shape.h"

#include <algorithm>
#include <numeric>

namespace longspan::sm90 {
namespace {

constexpr int64_t kMostPacked = 8;      // query heads of a row tile: 16 tokens are left of 128 rows
constexpr int64_t kLongRow = 512;       // keys of a mean row, from which wide tiles pay
constexpr int64_t kFinestBlock = 64;    // the smallest blocks that have tiles of their own
constexpr int64_t kLargestBlock = 128;  // blocks of a multiple of this need no finer tiles

// The largest block size, up to kLargestBlock, to which every band of every mask is aligned; 1 if there is a
// band with a diagonal bound. Ends at the mask's own ends are aligned to anything.
int64_t alignment(const HeadMasks& masks) {
  int64_t block = kLargestBlock;
  for (const Mask& mask : masks) {
    if (!mask.bands().rectangular()) return 1;
    for (const Band& band : mask.bands()) {
      block = std::gcd(block, std::gcd(band.q.begin, band.k.begin));
      if (band.q.end != mask.rows()) block = std::gcd(block, band.q.end);
      if (band.k.end != mask.columns()) block = std::gcd(block, band.k.end);
      if (block < kFinestBlock) return block;
    }
  }
  return block;
}

// A dense mask of one rectangle is aligned to anything too.
bool is_block_sparse(const HeadMasks& masks) {
  return std::any_of(masks.begin(), masks.end(), [](const Mask& mask) { return mask.bands().size() > 1; });
}

}  // namespace

ForwardShape choose_forward_shape(const Problem& problem) {
  const HeadMasks& masks = *problem.masks;
  ForwardShape shape;
  shape.pack = static_cast<int>(std::gcd(problem.group_size(), kMostPacked));

  const int64_t block = is_block_sparse(masks) ? alignment(masks) : 1;
  if (block == kLargestBlock) {
    shape.columns = 128;
    shape.pack = 1;  // row tiles as high as the blocks: the fewest runs
  } else if (block == kFinestBlock) {
    shape.columns = 64;
    shape.pack = std::min(shape.pack, 2);
    shape.streams = shape.pack == 2 ? 1 : 2;  // row tiles of 64 tokens: of two heads, or of one
  } else {
    const int64_t rows = problem.tokens_q * problem.heads_q;
    shape.columns = problem.head_dim == 128 && problem.area() >= kLongRow * rows ? 160 : 128;
  }
  return shape;
}

}  // namespace longspan::sm90
