// Sets of tokens as lists of ranges. A *set* is sorted, disjoint and merged. A *list* is disjoint in any
// order; its order is that of the packed rows.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mask/mask.h"

namespace longspan {

using Ranges = std::vector<Range>;

int64_t count(std::span<const Range> ranges);                       // number of tokens
bool is_set(std::span<const Range> list);                           // sorted and merged already
Ranges set_of(std::span<const Range> list);                         // sorted and merged
Ranges united(std::span<const Range> a, std::span<const Range> b);  // inputs are lists; the result is a set
Ranges intersection(std::span<const Range> a, std::span<const Range> b);  // inputs and result are sets
Ranges difference(std::span<const Range> a, std::span<const Range> b);    // inputs and result are sets

// Appends a range to a list and merges it with the last range if they touch; ignores an empty range.
void append(Ranges& list, Range range);

bool includes(std::span<const Range> a, std::span<const Range> b);  // sets: whether a contains all of b
bool includes(std::span<const Range> set, Range range);             // the same of one range
bool inside(Range inner, Range outer);                              // whether outer contains all of inner
bool overlap(std::span<const Range> a, std::span<const Range> b);   // sets: whether they share a token

// The tokens of `list` that are in `set`, in list order; touching neighbours are merged.
Ranges select(std::span<const Range> list, std::span<const Range> set);

// The tokens at packed positions [begin, end) of a list, in list order.
Ranges slice(std::span<const Range> list, int64_t begin, int64_t end);

// The position in `list` at which the rows of `part` lie contiguously in the same order; -1 if there is none.
int64_t position_of(std::span<const Range> part, std::span<const Range> list);

// Part number `part` of [begin, end) divided into `parts` parts whose sizes differ by at most one.
Range part_of(Range range, int64_t part, int64_t parts);

// Calls copy(from, to, length), in packed positions of each list, for each run of tokens that both hold.
template <class Copy>
void for_each_common(std::span<const Range> from, std::span<const Range> to, Copy copy);

}  // namespace longspan

#include <algorithm>

namespace longspan {

template <class Copy>
void for_each_common(std::span<const Range> from, std::span<const Range> to, Copy copy) {
  struct Placed {
    Range range;
    int64_t position;
  };
  auto placed = [](std::span<const Range> list) {
    std::vector<Placed> out;
    int64_t position = 0;
    for (const Range& range : list) {
      if (!range.empty()) out.push_back({range, position});
      position += range.size();
    }
    std::sort(out.begin(), out.end(),
              [](const Placed& a, const Placed& b) { return a.range.begin < b.range.begin; });
    return out;
  };
  const auto a = placed(from), b = placed(to);
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    const int64_t begin = std::max(a[i].range.begin, b[j].range.begin);
    const int64_t end = std::min(a[i].range.end, b[j].range.end);
    if (begin < end) {
      copy(a[i].position + begin - a[i].range.begin, b[j].position + begin - b[j].range.begin, end - begin);
    }
    (a[i].range.end < b[j].range.end ? i : j)++;
  }
}

}  // namespace longspan
