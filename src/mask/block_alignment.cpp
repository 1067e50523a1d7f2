#include "mask/block_alignment.h"

#include <algorithm>

namespace longspan {

int64_t block_alignment(const HeadMasks& masks, int64_t finest, int64_t largest) {
  if (std::ranges::all_of(masks, [](const Mask& mask) { return mask.bands().size() <= 1; })) return 1;
  int64_t edges = largest;  // all edges, ORed: the lowest set bit is the block size
  for (const Mask& mask : masks) {
    if (!mask.bands().rectangular()) return 1;
    const auto edge = [&](int64_t at, int64_t end_of_mask) {
      if (at != end_of_mask) edges |= at;
    };
    for (const BandList::Group& group : mask.bands().groups()) {
      edge(group.q_begin, -1);
      edge(group.q_end, mask.rows());
    }
    for (const Band& band : mask.bands()) {
      edge(band.k.begin, -1);
      edge(band.k.end, mask.columns());
    }
    if ((edges & (finest - 1)) != 0) break;
  }
  return edges & -edges;
}

}  // namespace longspan
