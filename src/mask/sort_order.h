// The order of the bands of a mask.
#pragma once

#include <tuple>

#include "mask/band.h"

namespace longspan {

// By (q.begin, k.begin, lo), which is total for disjoint bands; the rest settles the place of bands that
// overlap, which are reported and go no further.
inline bool sorts_before(const Band& a, const Band& b) {
  auto key = [](const Band& band) {
    return std::tie(band.q.begin, band.k.begin, band.lo, band.q.end, band.k.end, band.hi);
  };
  return key(a) < key(b);
}

}  // namespace longspan
