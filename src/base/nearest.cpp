#include "base/nearest.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

namespace longspan {
namespace {

constexpr size_t kLongest = 64;  // no name is longer, and the distance takes the product of the lengths

// Levenshtein distance, with a swap of neighbours counted as one edit, since it is a common typing error.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before(b.size() + 1), above(b.size() + 1), row(b.size() + 1);
  std::iota(above.begin(), above.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({above[j] + 1, row[j - 1] + 1, above[j - 1] + (a[i - 1] != b[j - 1])});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
    before.swap(above);
    above.swap(row);
  }
  return above[b.size()];
}

}  // namespace

std::string nearest(std::string_view typed, const std::vector<std::string>& candidates) {
  if (typed.size() > kLongest) return "";
  const std::string* best = nullptr;
  size_t least = std::max<size_t>(2, typed.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    if (typed.size() > 1 && typed != "--" && candidate.starts_with(typed)) return candidate;
    const size_t distance = edit_distance(typed, candidate);
    if (distance < least) {
      least = distance;
      best = &candidate;
    }
  }
  return best == nullptr ? "" : *best;
}

std::string did_you_mean(std::string_view typed, const std::vector<std::string>& candidates) {
  const std::string name = nearest(typed, candidates);
  return name.empty() ? "" : fmt::format(" (did you mean '{}'?)", name);
}

}  // namespace longspan
