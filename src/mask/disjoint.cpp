// The search for overlapping bands: a sweep over the rows, as Shamos and Hoey (1976) do it for segments.
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

// Bands of the same rows without diagonal bounds, sorted by their first column: only neighbours can meet.
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

// Any bands. From one row to the next the ends of a band's interval move by at most one column to the right,
// so two bands cannot change sides without overlapping: while all are disjoint, the live bands keep their
// order along the columns, and the first overlap is between two that are neighbours in it. So it suffices
// to test each pair when it becomes neighbours.
Overlap overlap_by_sweep(const BandList& bands, size_t first_group, size_t last_group) {
  int64_t row = 0;  // what the order of the live bands refers to
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
      if (!inserted) return std::pair{*place, band};  // both show that row's first column
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
  // Groups whose rows do not touch cannot overlap: treat each chain of groups that do by itself.
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
