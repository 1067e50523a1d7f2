// Intersections of ranges and of bands.
#pragma once

#include <algorithm>
#include <string>

#include "longspan/mask.h"

namespace longspan {

inline Range intersection(const Range& a, const Range& b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

// The intersection of two bands is a band.
inline Band intersection(const Band& a, const Band& b) {
  return {intersection(a.q, b.q), intersection(a.k, b.k), std::max(a.lo, b.lo), std::min(a.hi, b.hi)};
}

// "[q0,q1,k0,k1,lo,hi]", as in mask files; null for an unbounded lo or hi.
std::string to_string(const Band& band);

}  // namespace longspan
