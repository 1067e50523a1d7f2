// Masks: construction, visible keys, and masks derived from a mask.
#include "mask/mask.h"

#include <algorithm>
#include <tuple>

#include "base/error.h"
#include "mask/disjoint.h"
#include "mask/sort_order.h"
#include "mask/transpose.h"

namespace longspan {
namespace {

constexpr size_t kReachGroups = 64;  // groups that the search for a row tests at once

void check_size(int64_t rows, int64_t columns) {
  LONGSPAN_CHECK_INPUT(0 <= rows && rows <= kMaxTokens, "a mask of {} rows: must be 0 to {}", rows,
                       kMaxTokens);
  LONGSPAN_CHECK_INPUT(0 <= columns && columns <= kMaxTokens, "a mask of {} columns: must be 0 to {}",
                       columns, kMaxTokens);
}

BandList sorted_list(std::vector<Band> bands) {
  if (!std::is_sorted(bands.begin(), bands.end(), sorts_before))
    std::sort(bands.begin(), bands.end(), sorts_before);
  BandList list;
  for (const Band& band : bands) list.append(band);
  return list;
}

void check_well_formed(const Band& band, size_t number) {
  LONGSPAN_CHECK_INPUT(band.q.begin <= band.q.end && band.k.begin <= band.k.end,
                       "band {} {}: its rows and its columns must each begin before they end", number,
                       to_string(band));
  LONGSPAN_CHECK_INPUT(band.lo <= band.hi, "band {} {}: lo must not be above hi", number, to_string(band));
}

// Report the bands as the user gave them, not in normal form.
void check_disjoint(const BandList& list, const std::vector<Band>& given) {
  const auto found = find_overlap(list);
  if (!found) return;
  const Band common = intersection(found->first, found->second).normalized();
  const int64_t row = common.q.begin, column = common.columns(row).begin;
  std::string names;
  size_t number = 0, named = 0;
  for (const Band& band : given) {
    if (named < 2 && band.columns(row).contains(column))
      names += fmt::format("{}{} {}", named++ == 0 ? "" : " and ", number, to_string(band));
    ++number;
  }
  LONGSPAN_CHECK_INPUT(!found,
                       "bands {} overlap: both show row {}, column {}; the bands of a mask must be disjoint",
                       names, row, column);
}

BandList normalized_list(int64_t rows, int64_t columns, const std::vector<Band>& bands) {
  check_size(rows, columns);
  std::vector<Band> kept;
  kept.reserve(bands.size());
  const Band all{{0, rows}, {0, columns}};
  for (size_t i = 0; i < bands.size(); ++i) {
    check_well_formed(bands[i], i);
    const Band band = intersection(bands[i], all).normalized();
    if (!band.q.empty()) kept.push_back(band);
  }
  BandList list = sorted_list(std::move(kept));
  check_disjoint(list, bands);
  return list;
}

// Rectangles with disjoint row ranges, from left to right within a range, as in block-sparse masks. One pass
// shows that such a list is normalised, sorted and disjoint.
bool is_rows_of_blocks(int64_t rows, int64_t columns, const BandList& bands) {
  if (!bands.rectangular()) return false;
  int64_t row = 0;
  for (size_t group = 0; group < bands.groups().size(); ++group) {
    const BandList::Group& of_rows = bands.groups()[group];
    if (of_rows.q_begin < row || of_rows.q_end <= of_rows.q_begin) return false;
    row = of_rows.q_end;
    int64_t column = 0;
    for (size_t i = bands.group_begin(group); i < bands.group_end(group); ++i) {
      const Range k = bands.band(group, i).k;
      if (k.begin < column || k.empty()) return false;
      column = k.end;
    }
    if (column > columns) return false;
  }
  return row <= rows;
}

BandList normalized_list(int64_t rows, int64_t columns, BandList bands) {
  check_size(rows, columns);
  if (is_rows_of_blocks(rows, columns, bands)) return bands;
  return normalized_list(rows, columns, std::vector<Band>(bands.begin(), bands.end()));
}

}  // namespace

Mask::Mask(int64_t rows, int64_t columns, const std::vector<Band>& bands)
    : Mask(rows, columns, normalized_list(rows, columns, bands), Disjoint{}) {}

Mask::Mask(int64_t rows, int64_t columns, BandList bands)
    : Mask(rows, columns, normalized_list(rows, columns, std::move(bands)), Disjoint{}) {}

Mask::Mask(int64_t rows, int64_t columns, BandList bands, Disjoint) : rows_(rows), columns_(columns) {
  for (const Band& band : bands) area_ += band.area();
  auto reach = std::make_shared<std::vector<int32_t>>();
  for (size_t group = 0; group < bands.groups().size(); ++group) {
    if (group % kReachGroups == 0) reach->push_back(0);
    reach->back() = std::max(reach->back(), bands.groups()[group].q_end);
  }
  reach_ = std::move(reach);
  bands_ = std::make_shared<const BandList>(std::move(bands));
}

const BandList& Mask::bands() const {
  static const BandList none;
  return bands_ ? *bands_ : none;
}

template <class Visit>
void Mask::for_each_band_of_row(int64_t row, Visit visit) const {
  LONGSPAN_CHECK_INPUT(0 <= row && row < rows_, "row {} is outside the {} rows of the mask", row, rows_);
  const auto& groups = bands().groups();
  for (size_t block = 0; block * kReachGroups < groups.size(); ++block) {
    const size_t first = block * kReachGroups;
    if (groups[first].q_begin > row) return;
    if ((*reach_)[block] <= row) continue;
    for (size_t group = first; group < std::min(first + kReachGroups, groups.size()); ++group) {
      if (groups[group].q_begin > row) return;
      if (groups[group].q_end <= row) continue;
      for (size_t i = bands_->group_begin(group); i < bands_->group_end(group); ++i)
        visit(bands_->band(group, i));
    }
  }
}

int64_t Mask::visible_count(int64_t row) const {
  int64_t count = 0;
  for_each_band_of_row(row, [&](const Band& band) { count += band.columns(row).size(); });
  return count;
}

std::vector<Range> Mask::visible_keys(int64_t row) const {
  std::vector<Range> keys;
  for_each_band_of_row(row, [&](const Band& band) { keys.push_back(band.columns(row)); });
  auto by_begin = [](const Range& a, const Range& b) { return a.begin < b.begin; };
  if (!std::is_sorted(keys.begin(), keys.end(), by_begin)) std::sort(keys.begin(), keys.end(), by_begin);
  size_t merged = 0;
  for (const Range& range : keys) {
    if (merged > 0 && keys[merged - 1].end == range.begin)
      keys[merged - 1].end = range.end;
    else
      keys[merged++] = range;
  }
  keys.resize(merged);
  return keys;
}

bool Mask::visible(int64_t row, int64_t column) const {
  LONGSPAN_CHECK_INPUT(0 <= column && column < columns_, "column {} is outside the {} columns of the mask",
                       column, columns_);
  bool found = false;
  for_each_band_of_row(row, [&](const Band& band) { found = found || band.columns(row).contains(column); });
  return found;
}

std::vector<int64_t> Mask::visible_counts() const {
  // Each band adds end(row) - begin(row), two piecewise linear functions with one bend each. Accumulate their
  // jumps and slopes as differences, then integrate.
  std::vector<int64_t> jump(static_cast<size_t>(rows_) + 1), slope(static_cast<size_t>(rows_) + 1);
  auto add = [&](int64_t begin, int64_t end, int64_t value_at_zero, int64_t rise) {
    if (begin >= end) return;
    jump[begin] += value_at_zero;
    jump[end] -= value_at_zero;
    slope[begin] += rise;
    slope[end] -= rise;
  };
  for (const Band& band : bands()) {
    const Range& q = band.q;
    if (band.hi == kUnboundedAbove) {
      add(q.begin, q.end, band.k.end, 0);
    } else {  // row + hi + 1 until it reaches k.end
      const int64_t bend = std::clamp(band.k.end - band.hi - 1, q.begin, q.end);
      add(q.begin, bend, band.hi + 1, 1);
      add(bend, q.end, band.k.end, 0);
    }
    if (band.lo == kUnboundedBelow) {
      add(q.begin, q.end, -band.k.begin, 0);
    } else {  // k.begin until row + lo passes it
      const int64_t bend = std::clamp(band.k.begin - band.lo, q.begin, q.end);
      add(q.begin, bend, -band.k.begin, 0);
      add(bend, q.end, -band.lo, -1);
    }
  }
  std::vector<int64_t> counts(static_cast<size_t>(rows_));
  int64_t value_at_zero = 0, rise = 0;
  for (int64_t row = 0; row < rows_; ++row) {
    value_at_zero += jump[row];
    rise += slope[row];
    counts[row] = value_at_zero + rise * row;
  }
  return counts;
}

namespace {

// A range of a gathered list and its position in the packed result.
struct PlacedRange {
  Range range;
  int64_t local = 0;

  int64_t shift() const { return local - range.begin; }
};

// The ranges of a list with contiguous ones joined, sorted by global position.
std::vector<PlacedRange> placed_ranges(std::span<const Range> ranges, int64_t limit, const char* what,
                                       int64_t& total) {
  std::vector<PlacedRange> pieces;
  total = 0;
  for (const Range& range : ranges) {
    LONGSPAN_CHECK_INPUT(0 <= range.begin && range.begin <= range.end && range.end <= limit,
                         "gather: {} [{}, {}) is outside the mask's {}", what, range.begin, range.end, limit);
    if (range.empty()) continue;
    if (!pieces.empty() && pieces.back().range.end == range.begin)
      pieces.back().range.end = range.end;
    else
      pieces.push_back({range, total});
    total += range.size();
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const PlacedRange& a, const PlacedRange& b) { return a.range.begin < b.range.begin; });
  for (size_t i = 1; i < pieces.size(); ++i)
    LONGSPAN_CHECK_INPUT(pieces[i - 1].range.end <= pieces[i].range.begin,
                         "gather: {} [{}, {}) and [{}, {}) overlap", what, pieces[i - 1].range.begin,
                         pieces[i - 1].range.end, pieces[i].range.begin, pieces[i].range.end);
  return pieces;
}

// The first of the sorted ranges that ends after `position`.
size_t first_after(const std::vector<PlacedRange>& pieces, int64_t position) {
  auto it = std::partition_point(pieces.begin(), pieces.end(),
                                 [&](const PlacedRange& piece) { return piece.range.end <= position; });
  return static_cast<size_t>(it - pieces.begin());
}

Band shifted(Band band, int64_t row_shift, int64_t column_shift) {
  band.q = {band.q.begin + row_shift, band.q.end + row_shift};
  band.k = {band.k.begin + column_shift, band.k.end + column_shift};
  if (band.lo != kUnboundedBelow) band.lo += column_shift - row_shift;
  if (band.hi != kUnboundedAbove) band.hi += column_shift - row_shift;
  return band;
}

// Joins neighbours that form one band. Gathering splits bands, and most parts land side by side again. Many
// small bands would make a kernel treat the mask as a mask of blocks.
void join_neighbours(std::vector<Band>& bands) {
  const auto join = [&](Range Band::*along, Range Band::*across) {
    const auto key = [&](const Band& b) {
      return std::tuple((b.*across).begin, (b.*across).end, b.lo, b.hi, (b.*along).begin);
    };
    std::sort(bands.begin(), bands.end(), [&](const Band& a, const Band& b) { return key(a) < key(b); });
    size_t kept = 0;
    for (size_t i = 1; i < bands.size(); ++i) {
      Band& last = bands[kept];
      const Band& next = bands[i];
      if (last.*across == next.*across && last.lo == next.lo && last.hi == next.hi &&
          (last.*along).end == (next.*along).begin) {
        (last.*along).end = (next.*along).end;
      } else {
        bands[++kept] = next;
      }
    }
    bands.resize(kept + 1);
  };
  if (bands.size() < 2) return;
  join(&Band::k, &Band::q);
  join(&Band::q, &Band::k);
}

}  // namespace

Mask Mask::window(int64_t tokens, int64_t left, int64_t right) {
  const int64_t lengths[] = {tokens};
  return documents(lengths, left, right);
}

Mask Mask::documents(std::span<const int64_t> lengths, int64_t left, int64_t right) {
  LONGSPAN_CHECK_INPUT(left >= 0 && right >= 0,
                       "a window of {} tokens to the left and {} to the right: both must be at least 0", left,
                       right);
  std::vector<Band> bands;
  int64_t begin = 0;
  for (const int64_t length : lengths) {
    LONGSPAN_CHECK_INPUT(0 <= length && length <= kMaxTokens - begin,
                         "a document of {} tokens after {}: must be at least 0, and all of them at most {}",
                         length, begin, kMaxTokens);
    const Range document{begin, begin + length};
    if (length > 0)
      bands.push_back({document, document, left == kUnboundedAbove ? kUnboundedBelow : -left, right});
    begin += length;
  }
  return Mask(begin, begin, bands);
}

std::vector<Band> Mask::band_vector() const {
  return {bands().begin(), bands().end()};
}

Mask Mask::gather(std::span<const Range> q_ranges, std::span<const Range> k_ranges) const {
  int64_t rows = 0, columns = 0;
  const auto q_pieces = placed_ranges(q_ranges, rows_, "rows", rows);
  const auto k_pieces = placed_ranges(k_ranges, columns_, "columns", columns);
  std::vector<Band> gathered, parts;
  for (const Band& band : bands()) {
    parts.clear();
    for (size_t i = first_after(q_pieces, band.q.begin); i < q_pieces.size(); ++i) {
      const PlacedRange& q = q_pieces[i];
      if (q.range.begin >= band.q.end) break;
      const Band rows_of_piece = Band{intersection(band.q, q.range), band.k, band.lo, band.hi}.normalized();
      for (size_t j = first_after(k_pieces, rows_of_piece.k.begin); j < k_pieces.size(); ++j) {
        const PlacedRange& k = k_pieces[j];
        if (k.range.begin >= rows_of_piece.k.end) break;
        Band part = rows_of_piece;
        part.k = intersection(part.k, k.range);
        part = part.normalized();
        if (!part.q.empty()) parts.push_back(shifted(part, q.shift(), k.shift()));
      }
    }
    join_neighbours(parts);
    gathered.insert(gathered.end(), parts.begin(), parts.end());
  }
  return Mask(rows, columns, sorted_list(std::move(gathered)), Disjoint{});
}

Mask Mask::transposed() const {
  return Mask(columns_, rows_, longspan::transposed(bands(), columns_), Disjoint{});
}

bool operator==(const Mask& a, const Mask& b) {
  return a.rows_ == b.rows_ && a.columns_ == b.columns_ && (a.bands_ == b.bands_ || a.bands() == b.bands());
}

}  // namespace longspan
