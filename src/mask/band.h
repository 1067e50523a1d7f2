// Ranges of tokens and bands of pairs: what masks are made of.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>

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
  int64_t area() const {             // visible pairs, in closed form
    return rectangular() ? std::max<int64_t>(q.size(), 0) * std::max<int64_t>(k.size(), 0) : bounded_area();
  }
  bool rectangular() const { return lo == kUnboundedBelow && hi == kUnboundedAbove; }
  bool empty() const;  // no visible pair

  // The same pairs in normal form: no row or column at the ends of q and k without a visible pair, and a
  // bound that never binds is unbounded. Two bands show the same pairs if and only if their normal forms are
  // equal.
  Band normalized() const { return rectangular() && !q.empty() && !k.empty() ? *this : tightened(); }

  friend bool operator==(const Band&, const Band&) = default;

 private:
  int64_t bounded_area() const;
  Band tightened() const;
};

inline Range intersection(const Range& a, const Range& b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

// Bands are closed under intersection.
inline Band intersection(const Band& a, const Band& b) {
  return {intersection(a.q, b.q), intersection(a.k, b.k), std::max(a.lo, b.lo), std::min(a.hi, b.hi)};
}

// "[q0,q1,k0,k1,lo,hi]", as mask files write it: null for an unbounded lo or hi.
std::string to_string(const Band& band);

}  // namespace longspan
