// The sort order of the bands of a mask.
#pragma once

#include <tuple>

#include "mask/band.h"

namespace longspan {

// By (q.begin, k.begin, lo), which is a total order on disjoint bands. The remaining keys give overlapping
// bands a definite order until they are reported.
inline bool sorts_before(const Band& a, const Band& b) {
  auto key = [](const Band& band) {
    return std::tie(band.q.begin, band.k.begin, band.lo, band.q.end, band.k.end, band.hi);
  };
  return key(a) < key(b);
}

}  // namespace longspan
