// Sets of tokens as lists of ranges. A *set* is sorted, disjoint and merged; a *list* is disjoint in any
// order, and its order is the order of the packed rows it stands for.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "mask/mask.h"

namespace longspan {

using Ranges = std::vector<Range>;

int64_t count(std::span<const Range> ranges);                             // tokens
Ranges set_of(std::span<const Range> list);                               // sorted and merged
Ranges united(std::span<const Range> a, std::span<const Range> b);        // of lists; a set
Ranges intersection(std::span<const Range> a, std::span<const Range> b);  // of sets; a set
Ranges difference(std::span<const Range> a, std::span<const Range> b);    // of sets; a set

// Adds a range at the end of a list, merged with the last one where they touch; an empty one adds nothing.
void append(Ranges& list, Range range);

bool includes(std::span<const Range> a, std::span<const Range> b);  // sets: is all of b in a?
bool overlap(std::span<const Range> a, std::span<const Range> b);   // sets: have they a token in common?

// Those of `list` that are in `set`, in the list's order; adjacent neighbours merged.
Ranges select(std::span<const Range> list, std::span<const Range> set);

// Packed positions [begin, end) of a list, as ranges of tokens in the list's order.
Ranges slice(std::span<const Range> list, int64_t begin, int64_t end);

// Where the rows of `part` lie together in those of `list`, in the same order: the position of the first;
// else -1.
int64_t position_of(std::span<const Range> part, std::span<const Range> list);

// [begin, end) cut into `parts` parts that differ by at most one: part number `part`.
Range part_of(Range range, int64_t part, int64_t parts);

// Calls copy(from, to, length) for each stretch of tokens that both lists hold: packed positions in each.
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
