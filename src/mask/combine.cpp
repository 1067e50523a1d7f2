// Masks made from other forms: the pairs that two masks share, and a matrix of visible pairs.
#include <algorithm>
#include <vector>

#include "base/error.h"
#include "mask/band.h"
#include "mask/mask.h"

namespace longspan {
namespace {

// Bands of one mask whose rows may still meet those of later bands.
class OpenBands {
 public:
  // The intersections of `band` with the open bands. Bands that end before its first row are closed.
  void meet(const Band& band, std::vector<Band>& found) {
    std::erase_if(open_, [&](const Band& b) { return b.q.end <= band.q.begin; });
    for (const Band& other : open_) {
      const Band common = intersection(band, other);
      if (!common.k.empty() && common.lo <= common.hi) found.push_back(common);
    }
  }
  void add(const Band& band) { open_.push_back(band); }

 private:
  std::vector<Band> open_;
};

// A band that grows row by row: in each row, its keys begin and end where they did in the row before, or one
// key later.
struct GrowingBand {
  Range keys;  // of the last row
  Range first_keys;
  int64_t first_row = 0, last_row = 0;
  int begin_step = -1, end_step = -1;  // -1: not known before the second row

  bool continues_with(int64_t row, const Range& next) const {
    const int64_t begin = next.begin - keys.begin, end = next.end - keys.end;
    if (row != last_row + 1 || begin < 0 || begin > 1 || end < 0 || end > 1) return false;
    return begin_step < 0 || (begin == begin_step && end == end_step);
  }
  void grow(int64_t row, const Range& next) {
    begin_step = static_cast<int>(next.begin - keys.begin);
    end_step = static_cast<int>(next.end - keys.end);
    keys = next;
    last_row = row;
  }
  Band band() const {
    return {{first_row, last_row + 1},
            {first_keys.begin, keys.end},
            begin_step == 1 ? first_keys.begin - first_row : kUnboundedBelow,
            end_step == 1 ? first_keys.end - 1 - first_row : kUnboundedAbove};
  }
};

// [begin, end) of each run of visible pairs in a row.
std::vector<Range> runs_of(const uint8_t* row, int64_t columns) {
  std::vector<Range> runs;
  const uint8_t* const end = row + columns;
  for (const uint8_t* at = row;;) {
    at = std::find_if(at, end, [](uint8_t x) { return x != 0; });
    if (at == end) return runs;
    const uint8_t* const after = std::find(at, end, uint8_t{0});
    runs.push_back({at - row, after - row});
    at = after;
  }
}

}  // namespace

// Both lists of bands are sorted by their first rows, so one sweep down the rows meets all pairs of bands.
Mask Mask::intersected(const Mask& other) const {
  LONGSPAN_CHECK_INPUT(rows_ == other.rows_ && columns_ == other.columns_,
                       "masks of {} x {} and {} x {}: both must have the same size", rows_, columns_,
                       other.rows_, other.columns_);
  std::vector<Band> found;
  OpenBands mine, theirs;
  auto a = bands().begin(), b = other.bands().begin();
  const auto a_end = bands().end(), b_end = other.bands().end();
  while (!(a == a_end && b == b_end)) {
    if (b == b_end || (!(a == a_end) && (*a).q.begin <= (*b).q.begin)) {
      theirs.meet(*a, found);
      mine.add(*a);
      ++a;
    } else {
      mine.meet(*b, found);
      theirs.add(*b);
      ++b;
    }
  }
  return Mask(rows_, columns_, found);
}

Mask Mask::from_dense(const uint8_t* visible, int64_t rows, int64_t columns) {
  LONGSPAN_CHECK_INPUT(visible != nullptr || rows == 0 || columns == 0,
                       "visible is null: needs {} x {} bytes", rows, columns);
  std::vector<Band> bands;
  std::vector<GrowingBand> growing, next_growing;
  for (int64_t row = 0; row < rows; ++row) {
    // Runs of a row are in order, and so are the bands that they continue.
    size_t at = 0;
    next_growing.clear();
    for (const Range& run : runs_of(visible + row * columns, columns)) {
      while (at < growing.size() && growing[at].keys.begin < run.begin - 1)
        bands.push_back(growing[at++].band());
      if (at < growing.size() && growing[at].continues_with(row, run)) {
        growing[at].grow(row, run);
        next_growing.push_back(growing[at++]);
      } else {
        next_growing.push_back({run, run, row, row});
      }
    }
    for (; at < growing.size(); ++at) bands.push_back(growing[at].band());
    growing.swap(next_growing);
  }
  for (const GrowingBand& band : growing) bands.push_back(band.band());
  return Mask(rows, columns, bands);
}

std::vector<uint8_t> Mask::dense() const {
  std::vector<uint8_t> visible(static_cast<size_t>(rows_) * static_cast<size_t>(columns_), 0);
  for (const Band band : bands())
    for (int64_t row = band.q.begin; row < band.q.end; ++row) {
      const Range keys = band.columns(row);
      if (!keys.empty()) std::fill_n(visible.begin() + row * columns_ + keys.begin, keys.size(), uint8_t{1});
    }
  return visible;
}

}  // namespace longspan
