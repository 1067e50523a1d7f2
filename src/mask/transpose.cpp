// Transposes a list of bands one stripe of columns at a time. Sorting millions of bands at once would take
// several times the memory of the list.
#include "mask/transpose.h"

#include <algorithm>
#include <vector>

#include "mask/sort_order.h"

namespace longspan {
namespace {

constexpr int64_t kStripeBands = int64_t{1} << 16, kStripeColumns = int64_t{1} << 20;

// Sorts the flipped bands whose rows begin in the stripe. They arrive ordered by column, so after counting by
// row only ties need sorting.
void sort_stripe(std::vector<Band>& bands, const Range& stripe) {
  if (stripe.size() <= 8 * static_cast<int64_t>(bands.size())) {
    std::vector<uint32_t> place(static_cast<size_t>(stripe.size()) + 1);
    for (const Band& band : bands) ++place[band.q.begin - stripe.begin + 1];
    for (size_t i = 1; i < place.size(); ++i) place[i] += place[i - 1];
    std::vector<Band> sorted(bands.size());
    for (const Band& band : bands) sorted[place[band.q.begin - stripe.begin]++] = band;
    bands.swap(sorted);
  }
  if (!std::is_sorted(bands.begin(), bands.end(), sorts_before))
    std::sort(bands.begin(), bands.end(), sorts_before);
}

}  // namespace

Band flipped(const Band& band) {
  return {band.k, band.q, band.hi == kUnboundedAbove ? kUnboundedBelow : -band.hi,
          band.lo == kUnboundedBelow ? kUnboundedAbove : -band.lo};
}

BandList transposed(const BandList& bands, int64_t columns) {
  const auto size = static_cast<int64_t>(bands.size());
  const int64_t stripes =
      size <= kStripeBands ? 1 : std::max(size / kStripeBands, columns / kStripeColumns) + 1;
  const int64_t width = columns / stripes + 1;
  BandList result;
  result.reserve(bands.size());
  // Columns ascend within a group, so each stripe continues where the previous one stopped in that group.
  std::vector<size_t> next;
  for (size_t group = 0; group < bands.groups().size(); ++group) next.push_back(bands.group_begin(group));
  std::vector<Band> of_stripe;
  for (Range stripe{0, width}; stripe.begin < columns; stripe = {stripe.end, stripe.end + width}) {
    of_stripe.clear();
    for (size_t group = 0; group < next.size(); ++group) {
      for (; next[group] < bands.group_end(group); ++next[group]) {
        const Band band = bands.band(group, next[group]);
        if (band.k.begin >= stripe.end) break;
        of_stripe.push_back(flipped(band));
      }
    }
    sort_stripe(of_stripe, stripe);
    for (const Band& band : of_stripe) result.append(band);
  }
  return result;
}

}  // namespace longspan
