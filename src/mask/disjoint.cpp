// The search for overlapping bands: a sweep over the rows, after the segment intersection of Shamos and Hoey
// (1976).
#include "mask/disjoint.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <set>
#include <vector>

namespace longspan {
namespace {

using Overlap = std::optional<std::pair<Band, Band>>;

bool overlap(const Band& a, const Band& b) {
  return !intersection(a, b).empty();
}

// Bands of the same rows without diagonal bounds, sorted by first column: only neighbours can overlap.
Overlap overlap_of_rectangles(const BandList& bands, size_t group) {
  for (size_t i = bands.group_begin(group) + 1; i < bands.group_end(group); ++i) {
    const Band before = bands.band(group, i - 1), band = bands.band(group, i);
    if (before.k.end > band.k.begin) return std::pair{before, band};
  }
  return {};
}

bool all_rectangles(const BandList& bands, size_t group) {
  if (bands.rectangular()) return true;
  for (size_t i = bands.group_begin(group); i < bands.group_end(group); ++i) {
    if (!bands.band(group, i).rectangular()) return false;
  }
  return true;
}

// The general case. From one row to the next, both ends of a band's interval move right by at most one
// column, so two bands cannot swap sides without overlapping. While all are disjoint, the live bands keep
// their order along the columns, and the first overlap is between neighbours. Testing each pair when it
// becomes adjacent is therefore enough.
Overlap overlap_by_sweep(const BandList& bands, size_t first_group, size_t last_group) {
  int64_t row = 0;  // the row at which live bands are compared
  auto left_of = [&row](const Band& a, const Band& b) { return a.columns(row).begin < b.columns(row).begin; };
  using Live = std::set<Band, decltype(left_of)>;
  Live live(left_of);
  using End = std::pair<int64_t, Live::iterator>;
  auto ends_later = [](const End& a, const End& b) { return a.first > b.first; };
  std::priority_queue<End, std::vector<End>, decltype(ends_later)> ends(ends_later);

  auto retire = [&](Live::iterator band) -> Overlap {
    auto after = std::next(band);
    if (band != live.begin() && after != live.end()) {
      auto before = std::prev(band);
      if (overlap(*before, *after)) return std::pair{*before, *after};
    }
    live.erase(band);
    return {};
  };
  for (size_t group = first_group; group < last_group; ++group) {
    for (size_t i = bands.group_begin(group); i < bands.group_end(group); ++i) {
      const Band band = bands.band(group, i);
      while (!ends.empty() && ends.top().first <= band.q.begin) {
        if (Overlap found = retire(ends.top().second)) return found;
        ends.pop();
      }
      row = band.q.begin;
      auto [place, inserted] = live.insert(band);
      if (!inserted) return std::pair{*place, band};  // both show the first column of that row
      if (place != live.begin() && overlap(*std::prev(place), band))
        return std::pair{*std::prev(place), band};
      if (std::next(place) != live.end() && overlap(*std::next(place), band))
        return std::pair{band, *std::next(place)};
      ends.emplace(band.q.end, place);
    }
  }
  while (!ends.empty()) {
    if (Overlap found = retire(ends.top().second)) return found;
    ends.pop();
  }
  return {};
}

}  // namespace

std::optional<std::pair<Band, Band>> find_overlap(const BandList& bands) {
  const auto& groups = bands.groups();
  // Groups whose rows are disjoint cannot overlap, so process each chain of groups with touching rows
  // separately.
  for (size_t first = 0, last = 0; first < groups.size(); first = last) {
    int32_t end = groups[first].q_end;
    for (last = first + 1; last < groups.size() && groups[last].q_begin < end; ++last)
      end = std::max(end, groups[last].q_end);
    const bool simple = last == first + 1 && all_rectangles(bands, first);
    Overlap found = simple ? overlap_of_rectangles(bands, first) : overlap_by_sweep(bands, first, last);
    if (found) return found;
  }
  return {};
}

}  // namespace longspan
