// The compact list of bands: appending and indexing.
#include "mask/band_list.h"

#include <algorithm>

namespace longspan {

void BandList::append(const Band& band) {
  const auto q_begin = static_cast<int32_t>(band.q.begin);
  const auto q_end = static_cast<int32_t>(band.q.end);
  if (groups_.empty() || groups_.back().q_begin != q_begin || groups_.back().q_end != q_end)
    groups_.push_back({q_begin, q_end, static_cast<int64_t>(keys_.size())});
  const bool bounded = band.lo != kUnboundedBelow || band.hi != kUnboundedAbove;
  if (bounded && diagonals_.empty()) diagonals_.resize(keys_.size());
  keys_.push_back({static_cast<int32_t>(band.k.begin), static_cast<int32_t>(band.k.end)});
  // Once one band has a diagonal bound, every band has an entry.
  if (bounded || !diagonals_.empty())
    diagonals_.push_back({band.lo == kUnboundedBelow ? kNoLo : static_cast<int32_t>(band.lo),
                          band.hi == kUnboundedAbove ? kNoHi : static_cast<int32_t>(band.hi)});
}

Band BandList::operator[](size_t index) const {
  auto after = std::upper_bound(groups_.begin(), groups_.end(), static_cast<int64_t>(index),
                                [](int64_t number, const Group& group) { return number < group.first; });
  return band(static_cast<size_t>(after - groups_.begin()) - 1, index);
}

bool BandList::rows_are_alike(int64_t rows) const {
  return rectangular() && groups_.size() == 1 && groups_[0].q_begin == 0 && groups_[0].q_end == rows;
}

bool BandList::later_rows_see_more() const {
  return std::ranges::any_of(diagonals_, [](const Diagonals& d) { return d.lo == kNoLo && d.hi != kNoHi; });
}

size_t BandList::bytes() const {
  return groups_.size() * sizeof(Group) + keys_.size() * sizeof(Keys) + diagonals_.size() * sizeof(Diagonals);
}

}  // namespace longspan
