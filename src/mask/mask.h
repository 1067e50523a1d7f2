// A mask: which keys each query row sees, as a short list of bands.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "mask/band.h"
#include "mask/band_list.h"

namespace longspan {

inline constexpr int64_t kMaxTokens = std::numeric_limits<int32_t>::max();  // rows or columns of a mask

// Disjoint bands over rows [0, rows) and columns [0, columns). Immutable; a copy shares its bands.
//
// Bands are normalised at construction: each is clipped to the mask and tightened (no row or column at its
// ends without a visible pair, no bound that never binds; a bound that does not bind is unbounded), empty
// ones are dropped, and the rest are sorted by (q.begin, k.begin, lo). Memory is O(number of bands), never
// O(rows * columns).
class Mask {
 public:
  Mask() = default;

  // Throws an input error that names the two bands if any two overlap, or the band if one is malformed.
  Mask(int64_t rows, int64_t columns, const std::vector<Band>& bands);

  // The same for a compact list, for masks of millions of bands. Rows of blocks, sorted, are taken over as
  // they stand.
  Mask(int64_t rows, int64_t columns, BandList bands);

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }

  // To be iterated: `for (const Band& band : mask.bands())`.
  const BandList& bands() const;

  int64_t area() const { return area_; }               // visible pairs; the only source of the FLOP count
  int64_t visible_count(int64_t row) const;            // keys the row sees
  std::vector<Range> visible_keys(int64_t row) const;  // sorted, disjoint, adjacent ones merged
  bool visible(int64_t row, int64_t column) const;

  // visible_count of every row in O(bands + rows).
  std::vector<int64_t> visible_counts() const;

  // The mask of a subset of rows against a subset of columns, in packed local coordinates: local row i is the
  // i-th row of the concatenation of q_ranges, local column j likewise. The ranges of each list are disjoint
  // but in any order. A shard of a mask is a mask.
  Mask gather(std::span<const Range> q_ranges, std::span<const Range> k_ranges) const;

  Mask transposed() const;  // rows become columns: visible'(j, i) == visible(i, j)

  // The same bands. Masks cut into different bands are different, even where they show the same pairs.
  friend bool operator==(const Mask& a, const Mask& b);

 private:
  struct Disjoint {};  // the bands are known to be normalised and disjoint
  Mask(int64_t rows, int64_t columns, BandList bands, Disjoint);

  template <class Visit>
  void for_each_band_of_row(int64_t row, Visit visit) const;

  int64_t rows_ = 0, columns_ = 0, area_ = 0;
  std::shared_ptr<const BandList> bands_;
  std::shared_ptr<const std::vector<int32_t>> reach_;  // largest row end of each kReachGroups groups
};

// A problem's masks: one shared by all heads, or one per KV head.
using HeadMasks = std::vector<Mask>;

}  // namespace longspan
