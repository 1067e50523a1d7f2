// A mask: which keys each query row sees, as a short list of bands. docs/concepts/masks.md explains the idea.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longspan/base.h"

namespace longspan {

class BandList;

inline constexpr int64_t kMaxTokens = std::numeric_limits<int32_t>::max();  // rows or columns of a mask
inline constexpr int64_t kUnboundedBelow = std::numeric_limits<int64_t>::min();
inline constexpr int64_t kUnboundedAbove = std::numeric_limits<int64_t>::max();

// [begin, end), in tokens.
struct Range {
  int64_t begin = 0, end = 0;

  int64_t size() const { return end - begin; }
  bool empty() const { return end <= begin; }
  bool contains(int64_t i) const { return begin <= i && i < end; }
  friend bool operator==(const Range&, const Range&) = default;
};

// The pairs (row, column) with row in q, column in k and lo <= column - row <= hi. One struct covers full,
// causal, inverse causal and window masks, and clipped parts of them.
struct Band {
  Range q, k;
  int64_t lo = kUnboundedBelow, hi = kUnboundedAbove;

  Range columns(int64_t row) const;  // the columns that `row` sees in this band; empty if row is not in q
  int64_t area() const {             // visible pairs, in closed form
    return rectangular() ? (q.empty() || k.empty() ? 0 : q.size() * k.size()) : bounded_area();
  }
  bool rectangular() const { return lo == kUnboundedBelow && hi == kUnboundedAbove; }
  bool bounded() const { return lo != kUnboundedBelow && hi != kUnboundedAbove; }  // on both sides: a window
  bool empty() const;                                                              // no visible pair

  // The same pairs in normal form: each row and column at the ends of q and k has a visible pair, and a bound
  // that never binds is unbounded. Two bands show the same pairs if and only if their normal forms are equal.
  Band normalized() const { return rectangular() && !q.empty() && !k.empty() ? *this : tightened(); }
  friend bool operator==(const Band&, const Band&) = default;

 private:
  int64_t bounded_area() const;
  Band tightened() const;
};

// Disjoint bands over rows [0, rows) and columns [0, columns). Immutable; a copy shares its bands. Memory is
// O(number of bands), never O(rows * columns).
//
// Bands are normalised at construction: each is clipped to the mask and brought to its normal form, empty
// ones are dropped, and the rest are sorted by (q.begin, k.begin, lo).
//
// Rows and columns outside the mask, and ranges that are wrong, throw kInput.
class Mask {
 public:
  Mask() = default;
  Mask(const Mask&) = default;  // a move copies as well, so no mask is ever hollow
  Mask& operator=(const Mask&) = default;

  // Throws kInput that names two bands if they overlap, or a band if it is malformed.
  Mask(int64_t rows, int64_t columns, const std::vector<Band>& bands);
  Mask(int64_t rows, int64_t columns, BandList bands);  // the same for a compact list, for millions of bands

  // Row i sees columns i - left to i + right. Defaults: full. right = 0: causal.
  static Mask window(int64_t tokens, int64_t left = kUnboundedAbove, int64_t right = kUnboundedAbove);

  // Packed documents of these lengths, one after another, each with the mask of window().
  static Mask documents(std::span<const int64_t> lengths, int64_t left = kUnboundedAbove,
                        int64_t right = kUnboundedAbove);

  // The mask of a matrix [rows, columns] of bytes, row by row: what is not 0 is visible. Runs that continue
  // straight or diagonally in the next row become one band.
  static Mask from_dense(const uint8_t* visible, int64_t rows, int64_t columns);

  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  const BandList& bands() const;          // for Longspan's own sources; the type is internal
  std::vector<Band> band_vector() const;  // a copy of the bands, in order

  int64_t area() const { return area_; }               // visible pairs; the only source of the FLOP count
  int64_t visible_count(int64_t row) const;            // keys the row sees
  std::vector<Range> visible_keys(int64_t row) const;  // sorted, disjoint, adjacent ranges merged
  bool visible(int64_t row, int64_t column) const;
  std::vector<int64_t> visible_counts() const;  // visible_count of every row in O(bands + rows)

  // The mask of a subset of rows against a subset of columns, in packed local coordinates: local row i is the
  // i-th row of the concatenation of q_ranges, local column j likewise. The ranges of each list must be
  // disjoint, in any order. A shard of a mask is a mask.
  Mask gather(std::span<const Range> q_ranges, std::span<const Range> k_ranges) const;

  Mask transposed() const;                    // rows become columns: visible'(j, i) == visible(i, j)
  Mask intersected(const Mask& other) const;  // the pairs that both show; throws kInput if the sizes differ
  std::vector<uint8_t> dense() const;         // [rows, columns], 1 for each visible pair

  // Compares bands. Masks with different bands are different, even if they show the same pairs.
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

// The masks of a problem: one shared by all heads, or one per KV head.
using HeadMasks = std::vector<Mask>;

// The masks of a named pattern, as `longspan mask PATTERN --seqlen ...` draws them. `options` are those of
// the pattern, by name, with values as on the command line: {{"window", "1K"}, {"seed", "7"}}. Throws kInput
// for an unknown pattern or option, or an invalid value.
HeadMasks pattern_masks(std::string_view pattern, int64_t seqlen,
                        const std::map<std::string, std::string>& options = {});
std::vector<std::string> pattern_names();  // "full", "causal", "causal_document", ...

}  // namespace longspan
