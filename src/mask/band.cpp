// Closed forms for single bands.
#include "mask/band.h"

#include <algorithm>

#include <fmt/format.h>

namespace longspan {
namespace {

// Sum over m <= n of clamp(m, 0, limit).
int64_t clamped_sum(int64_t n, int64_t limit) {
  if (n <= 0) return 0;
  if (n <= limit) return n * (n + 1) / 2;
  return limit * (limit + 1) / 2 + (n - limit) * limit;
}

// The number of pairs in q x k with column - row <= diagonal.
int64_t area_up_to(const Range& q, const Range& k, int64_t diagonal) {
  if (diagonal >= k.end - 1 - q.begin) return q.size() * k.size();
  if (diagonal < k.begin - (q.end - 1)) return 0;
  // Row i shows clamp(i + shift, 0, k.size()) columns.
  const int64_t shift = diagonal + 1 - k.begin;
  return clamped_sum(q.end - 1 + shift, k.size()) - clamped_sum(q.begin - 1 + shift, k.size());
}

}  // namespace

Range Band::columns(int64_t row) const {
  // Compare the bounds before adding to them: they may be any int64.
  if (!q.contains(row) || k.empty() || lo > hi || lo > k.end - 1 - row || hi < k.begin - row) return {};
  return {lo <= k.begin - row ? k.begin : row + lo, hi >= k.end - 1 - row ? k.end : row + hi + 1};
}

int64_t Band::bounded_area() const {
  if (q.empty() || k.empty() || lo > hi) return 0;
  const int64_t below_lo = lo == kUnboundedBelow ? 0 : area_up_to(q, k, lo - 1);
  return area_up_to(q, k, hi) - below_lo;
}

bool Band::empty() const {
  return normalized().q.empty();
}

Band Band::tightened() const {
  Band band = *this;
  if (q.empty() || k.empty() || lo > hi) return Band{};
  // A row sees a key unless both diagonals lie left or right of k. Bounds that far outside the rectangle bind
  // always or never, so the sums below cannot overflow.
  if (lo > k.end - 1 - q.begin || hi < k.begin - (q.end - 1)) return Band{};
  const bool lo_binds = lo > k.begin - (q.end - 1);
  const bool hi_binds = hi < k.end - 1 - q.begin;
  if (hi_binds) band.q.begin = std::max(q.begin, k.begin - hi);
  if (lo_binds) band.q.end = std::min(q.end, k.end - lo);
  if (band.q.empty()) return Band{};
  // Each remaining row sees a column, so trimming the columns once suffices.
  if (lo_binds) band.k.begin = std::max(k.begin, band.q.begin + lo);
  if (hi_binds) band.k.end = std::min(k.end, band.q.end + hi);
  if (!(lo_binds && lo > band.k.begin - (band.q.end - 1))) band.lo = kUnboundedBelow;
  if (!(hi_binds && hi < band.k.end - 1 - band.q.begin)) band.hi = kUnboundedAbove;
  return band;
}

std::string to_string(const Band& band) {
  auto bound = [](int64_t x) {
    return x == kUnboundedBelow || x == kUnboundedAbove ? std::string("null") : fmt::format("{}", x);
  };
  return fmt::format("[{},{},{},{},{},{}]", band.q.begin, band.q.end, band.k.begin, band.k.end,
                     bound(band.lo), bound(band.hi));
}

}  // namespace longspan
