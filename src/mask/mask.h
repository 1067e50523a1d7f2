// A mask: which keys each query row sees, as a short list of bands.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <vector>

namespace longspan {

// [begin, end), in tokens.
struct Range {
  int64_t begin = 0, end = 0;

  int64_t size() const { return end - begin; }
  bool empty() const { return end <= begin; }
  bool contains(int64_t i) const { return begin <= i && i < end; }
  friend bool operator==(const Range&, const Range&) = default;
};

inline constexpr int64_t kUnboundedBelow = std::numeric_limits<int64_t>::min();
inline constexpr int64_t kUnboundedAbove = std::numeric_limits<int64_t>::max();

// The pairs (row, column) with row in q, column in k, and lo <= column - row <= hi.
// One struct covers full, causal, inverse causal and window masks and their clipped remains.
struct Band {
  Range q, k;
  int64_t lo = kUnboundedBelow, hi = kUnboundedAbove;

  Range columns(int64_t row) const;  // the columns that `row` sees in this band; empty if row is not in q
  int64_t area() const;              // visible pairs, in closed form
  friend bool operator==(const Band&, const Band&) = default;
};

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
  Mask(int64_t rows, int64_t columns, std::vector<Band> bands);

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  std::span<const Band> bands() const;

  int64_t area() const;                                // visible pairs; the only source of the FLOP count
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

  friend bool operator==(const Mask& a, const Mask& b);

 private:
  int64_t rows_ = 0, columns_ = 0;
  std::shared_ptr<const std::vector<Band>> bands_;
  std::shared_ptr<const std::vector<int64_t>>
      reach_;  // reach_[i] = max q.end of bands 0..i: bounds a row's search
};

// A problem's masks: one shared by all heads, or one per KV head.
using HeadMasks = std::vector<Mask>;

}  // namespace longspan
