#include "cp/schedule/ranges.h"

namespace longspan {
void append(Ranges& list, Range range) {
  if (range.empty()) return;
  if (!list.empty() && list.back().end == range.begin) {
    list.back().end = range.end;
  } else {
    list.push_back(range);
  }
}

int64_t count(std::span<const Range> ranges) {
  int64_t total = 0;
  for (const Range& range : ranges) total += range.size();
  return total;
}

bool is_set(std::span<const Range> list) {
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i].empty() || (i > 0 && list[i].begin <= list[i - 1].end)) return false;
  }
  return true;
}

Ranges set_of(std::span<const Range> list) {
  if (is_set(list)) return {list.begin(), list.end()};
  const auto before = [](Range a, Range b) { return a.begin < b.begin; };
  Ranges sorted(list.begin(), list.end());
  if (!std::is_sorted(sorted.begin(), sorted.end(), before)) std::sort(sorted.begin(), sorted.end(), before);
  Ranges set;
  for (Range range : sorted) {
    if (range.empty()) continue;
    if (!set.empty() && range.begin <= set.back().end) {
      set.back().end = std::max(set.back().end, range.end);
    } else {
      set.push_back(range);
    }
  }
  return set;
}

Ranges united(std::span<const Range> a, std::span<const Range> b) {
  Ranges both(a.size() + b.size());
  std::merge(a.begin(), a.end(), b.begin(), b.end(), both.begin(),
             [](Range x, Range y) { return x.begin < y.begin; });
  return set_of(both);
}

Ranges intersection(std::span<const Range> a, std::span<const Range> b) {
  Ranges set;
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    append(set, {std::max(a[i].begin, b[j].begin), std::min(a[i].end, b[j].end)});
    (a[i].end < b[j].end ? i : j)++;
  }
  return set;
}

Ranges difference(std::span<const Range> a, std::span<const Range> b) {
  Ranges set;
  size_t j = 0;
  for (Range rest : a) {
    while (j < b.size() && b[j].end <= rest.begin) ++j;
    for (size_t i = j; i < b.size() && b[i].begin < rest.end; ++i) {
      append(set, {rest.begin, std::max(rest.begin, b[i].begin)});
      rest.begin = std::min(rest.end, std::max(rest.begin, b[i].end));
    }
    append(set, rest);
  }
  return set;
}

bool includes(std::span<const Range> a, std::span<const Range> b) {
  if (b.size() == 1) return includes(a, b[0]);  // by far the most frequent query
  size_t i = 0;
  for (const Range& range : b) {
    if (range.empty()) continue;
    while (i < a.size() && a[i].end <= range.begin) ++i;
    if (i == a.size() || range.begin < a[i].begin || a[i].end < range.end) return false;
  }
  return true;
}

bool includes(std::span<const Range> set, Range range) {
  if (range.empty()) return true;
  const auto ends_before = [](const Range& r, int64_t token) { return r.end <= token; };
  auto at = set.begin();
  if (set.size() > 8) {
    at = std::lower_bound(at, set.end(), range.begin, ends_before);
  } else {
    while (at != set.end() && ends_before(*at, range.begin)) ++at;
  }
  return at != set.end() && inside(range, *at);
}

bool inside(Range inner, Range outer) {
  return outer.begin <= inner.begin && inner.end <= outer.end;
}

bool overlap(std::span<const Range> a, std::span<const Range> b) {
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (std::max(a[i].begin, b[j].begin) < std::min(a[i].end, b[j].end)) return true;
    (a[i].end < b[j].end ? i : j)++;
  }
  return false;
}

Ranges select(std::span<const Range> list, std::span<const Range> set) {
  Ranges selected;
  for (const Range& range : list) {
    auto it = std::lower_bound(set.begin(), set.end(), range.begin,
                               [](const Range& candidate, int64_t begin) { return candidate.end <= begin; });
    for (; it != set.end() && it->begin < range.end; ++it) {
      append(selected, {std::max(range.begin, it->begin), std::min(range.end, it->end)});
    }
  }
  return selected;
}

Ranges slice(std::span<const Range> list, int64_t begin, int64_t end) {
  Ranges part;
  int64_t position = 0;
  for (const Range& range : list) {
    if (position >= end) break;
    if (position + range.size() > begin) {
      append(part, {range.begin + std::max<int64_t>(0, begin - position),
                    range.begin + std::min(range.size(), end - position)});
    }
    position += range.size();
  }
  return part;
}

int64_t position_of(std::span<const Range> part, std::span<const Range> list) {
  const int64_t rows = count(part);
  const Ranges wanted = slice(part, 0, rows);
  if (wanted.empty()) return -1;
  int64_t position = 0;
  for (const Range& range : list) {
    if (range.begin <= wanted.front().begin && wanted.front().begin < range.end) {
      position += wanted.front().begin - range.begin;
      return slice(list, position, position + rows) == wanted ? position : -1;
    }
    position += range.size();
  }
  return -1;
}

Range part_of(Range range, int64_t part, int64_t parts) {
  const int64_t size = range.size();
  return {range.begin + size * part / parts, range.begin + size * (part + 1) / parts};
}

}  // namespace longspan
