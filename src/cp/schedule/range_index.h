// Finds the lists of tokens that share a token with a range, without trying each.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "cp/schedule/ranges.h"

namespace longspan {

class RangeIndex {
 public:
  // `number` names the list in for_each_overlap. To be followed by build() before a search.
  void add(int32_t number, const Ranges& tokens) {
    for (const Range& range : tokens) {
      if (!range.empty()) entries_.push_back({range, 0, number});
    }
  }

  void build() {
    std::sort(entries_.begin(), entries_.end(),
              [](const Entry& a, const Entry& b) { return a.range.begin < b.range.begin; });
    int64_t reach = 0;
    for (Entry& entry : entries_) entry.reach = reach = std::max(reach, entry.range.end);
  }

  // Calls visit(number) for each range of a list that shares a token with this one: perhaps several times for
  // a list.
  template <class Visit>
  void for_each_overlap(const Range& range, Visit visit) const {
    auto entry = std::lower_bound(entries_.begin(), entries_.end(), range.end,
                                  [](const Entry& e, int64_t end) { return e.range.begin < end; });
    while (entry != entries_.begin() && (--entry)->reach > range.begin) {
      if (entry->range.end > range.begin) visit(entry->number);
    }
  }

 private:
  struct Entry {
    Range range;
    int64_t reach;  // the largest range end among the entries so far, which bounds a backward search
    int32_t number;
  };
  std::vector<Entry> entries_;
};

}  // namespace longspan
