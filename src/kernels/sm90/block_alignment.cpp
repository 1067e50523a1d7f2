#include "kernels/sm90/block_alignment.h"

#include <algorithm>
#include <numeric>

namespace longspan::sm90 {

int64_t block_alignment(const HeadMasks& masks) {
  if (std::all_of(masks.begin(), masks.end(), [](const Mask& mask) { return mask.bands().size() <= 1; }))
    return 1;
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

}  // namespace longspan::sm90
