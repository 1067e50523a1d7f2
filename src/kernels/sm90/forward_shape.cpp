#include "kernels/sm90/forward_shape.h"

#include <algorithm>
#include <numeric>

#include "kernels/sm90/block_alignment.h"

namespace longspan::sm90 {
namespace {

constexpr int64_t kMostPacked = 8;  // query heads of a row tile: 16 tokens are left of 128 rows
constexpr int64_t kLongRow = 600,
                  kLongKeys = 1025;  // keys of a mean row, and in all, from which wide tiles pay

}  // namespace

ForwardShape choose_forward_shape(const Problem& problem) {
  const HeadMasks& masks = *problem.masks;
  ForwardShape shape;
  shape.pack = static_cast<int>(std::gcd(problem.group_size(), kMostPacked));

  const int64_t block = block_alignment(masks);
  if (block == kLargestBlock) {
    shape.columns = shape.piece = 128;
    shape.pack = 1;  // row tiles as high as the blocks: the fewest runs
  } else if (block == kFinestBlock) {
    shape.columns = 128;
    shape.piece = 64;
    shape.pack = std::min(shape.pack, 2);
    shape.streams = shape.pack == 2 ? 1 : 2;  // row tiles of 64 tokens: of two heads, or of one
  } else {
    const int64_t rows = problem.tokens_q * problem.heads_q;
    const bool wide =
        problem.head_dim == 128 && problem.tokens_kv >= kLongKeys && problem.area() >= kLongRow * rows;
    shape.columns = shape.piece = wide ? 160 : 128;
  }
  return shape;
}

}  // namespace longspan::sm90
