// A test for overlapping bands.
#pragma once

#include <optional>
#include <utility>

#include "mask/band_list.h"

namespace longspan {

// Returns two bands that share a pair, or nothing if all are disjoint. The bands must be normalised and
// sorted by (q.begin, k.begin, lo). O(n) for block-aligned rectangles, O(n log n) otherwise.
std::optional<std::pair<Band, Band>> find_overlap(const BandList& bands);

}  // namespace longspan
