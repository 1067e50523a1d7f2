// Do any two bands of a list overlap?
#pragma once

#include <optional>
#include <utility>

#include "mask/band_list.h"

namespace longspan {

// Two bands that share a pair, or nothing if all are disjoint. The bands are normalised and sorted by
// (q.begin, k.begin, lo). O(n) for bands whose rows are blocks, O(n log n) for any others.
std::optional<std::pair<Band, Band>> find_overlap(const BandList& bands);

}  // namespace longspan
