// The sweep of lowering: over a range of a mask's row tiles, with the bands that reach the current one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "mask/band_list.h"
#include "mask/lowering/clipped_band.h"
#include "mask/lowering/partial_table.h"
#include "mask/lowering/stretch.h"
#include "mask/lowering/tiling.h"

namespace longspan {

// A range of row tiles, and the state in which a sweep reaches it. Groups are those of the list of bands.
struct SweepRange {
  int64_t first_tile = 0, end_tile = 0;
  size_t next = 0;             // the first group that begins in the range or after it
  std::vector<size_t> active;  // groups that begin before the range and reach into it
};

// All row tiles in `count` ranges of about equal size.
std::vector<SweepRange> split_into_ranges(const BandList& bands, const Tiling& tiling, int64_t count);

// Lowers a range: each row tile's list of runs goes to a Writer, which has the format. A run is some full
// tiles or one partial tile at a place, its first column over the tiling's alignment. The writer has
//   Item                  an element {place, code} of a list; a code above 0 is a number of full tiles
//   PartialItems          those of a partial tile, of which the first has the place and the code
//   begin(), end()        of a row tile, whose list comes from left to right:
//   push_full(place, count), extend_full(count), push_partial(place, number)
//                         a run, or full tiles more in the last one
//   room(), end(to, sums) of a row tile, whose list of up to kRoom items is written from room() to `to`
//   repeat(count)         as many row tiles see what the last one sees
//   sums(), count(), back()          of the list, and its last item
//   last_count(), last_item(i)       of the list, when its row tile is ended
//   sums_of_full(tiles), sums_of_partial(number), partial(number)
//   place(item), items_at(item)      how many items belong together
template <class Writer>
class Sweep {
 public:
  // Bands are disjoint, normalised and in the order of a mask.
  Sweep(const BandList& bands, const Tiling& tiling, SweepRange range, PartialNumbers& partials,
        Writer& writer)
      : bands_(bands),
        tiling_(tiling),
        range_(std::move(range)),
        extends_(!tiling.starts.empty() && bands.rectangular()),
        width_(tiling.shape.columns),
        end_of_grid_(tiling.on_grid() ? tiling.columns : -1),
        alignment_(static_cast<uint32_t>(tiling.alignment)),
        step_(tiling.shape.columns / tiling.alignment),
        partials_(partials),
        writer_(writer),
        stretch_(tiling, partials, writer) {}

  void run() {
    bool repeats = false;  // the next row tile sees what this one sees as long as no band begins or ends
    for (int64_t t = range_.first_tile; t < range_.end_tile; ++t) {
      const Range rows = tiling_.rows_of(t);
      const bool whole = extends_ || rows.size() == tiling_.shape.rows;
      if (repeats && whole && rows.end <= same_until()) {
        const int64_t count = std::min(tiling_.whole_until(t, same_until()), range_.end_tile - t);
        writer_.repeat(count);
        t += count - 1;
        continue;
      }
      if (first_end_ <= rows.begin || next_row() < rows.end) advance(rows);
      cover(rows);
      // Row tiles from this one on whose rows all see the same bands.
      const int64_t alike = std::min((same_until() - rows.begin) / tiling_.shape.rows, range_.end_tile - t);
      if (alike > 1 && rows.size() == tiling_.shape.rows && may_stretch(rows.begin)) {
        t += stretch_.follow(before_, clipped_, alike - 1);
        repeats = false;
        continue;
      }
      const auto fills = [&](size_t group) {
        return group_of(group).q_begin <= rows.begin && group_of(group).q_end >= rows.end;
      };
      const auto rectangular = [](const ClippedBand& band) { return band.rectangular(); };
      repeats = whole && std::ranges::all_of(range_.active, fills) &&
                (bands_.rectangular() || std::ranges::all_of(clipped_, rectangular));
    }
  }

 private:
  const BandList::Group& group_of(size_t number) const { return bands_.groups()[number]; }
  int64_t next_row() const {  // where the next group begins
    return range_.next < bands_.groups().size() ? group_of(range_.next).q_begin : tiling_.rows;
  }
  int64_t same_until() const { return std::min(next_row(), first_end_); }

  // Drops groups that end before the row tile, and adds those that begin in it.
  void advance(const Range& rows) {
    std::erase_if(range_.active, [&](size_t group) { return group_of(group).q_end <= rows.begin; });
    for (; next_row() < rows.end; ++range_.next) range_.active.push_back(range_.next);
    first_end_ = std::numeric_limits<int64_t>::max();
    for (const size_t group : range_.active)
      first_end_ = std::min<int64_t>(first_end_, group_of(group).q_end);
  }

  // Whether the next row tiles may follow from this one: few bands, all of whose rows the row tile has, and
  // not rectangles alone, which repeat.
  bool may_stretch(int64_t first_row) const {
    const auto begun = [&](size_t group) { return group_of(group).q_begin <= first_row; };
    const auto bounded = [](const ClippedBand& band) { return !band.rectangular(); };
    return !bands_.rectangular() && clipped_.size() <= Stretch<Writer>::kMostBands &&
           std::ranges::all_of(range_.active, begun) && std::ranges::any_of(clipped_, bounded);
  }

  // Covers what a row tile sees with tiles, from left to right.
  void cover(const Range& rows) {
    rows_ = extends_ ? tiling_.shape.rows : rows.size();
    writer_.begin();
    last_is_full_ = false;
    int64_t covered = 0;
    size_t done = 0;  // bands of the only group
    if (range_.active.size() == 1 && bands_.rectangular()) {
      const BandList::Group& group = group_of(range_.active.front());
      if (group.q_begin <= rows.begin && group.q_end >= rows.end)
        done = cover_blocks(range_.active.front(), covered);
    }
    clipped_.clear();
    for (const size_t group : range_.active)
      for (size_t i = bands_.group_begin(group) + done; i < bands_.group_end(group); ++i) {
        clipped_.emplace_back(bands_.band(group, i), rows);
        if (extends_) clipped_.back().q_end = tiling_.shape.rows;
      }
    cover_clipped(covered);
    writer_.end();
  }

  // Covers blocks of a group as far as tiles divide them. Returns how many.
  size_t cover_blocks(size_t group, int64_t& covered) {
    const size_t begin = bands_.group_begin(group), end = bands_.group_end(group);
    int64_t first = 0, tiles = 0, until = 0;  // full tiles that are not written yet, and their end
    size_t i = begin;
    for (; i < end; ++i) {
      const Range columns = bands_.columns(i);
      const int64_t count = full_tiles(columns.begin, columns.end), last = columns.begin + count * width_;
      if (columns.begin < until || aligned(columns.begin) != columns.begin || last < columns.end) break;
      if (columns.begin > until) {
        if (tiles > 0) writer_.push_full(place(first), static_cast<int32_t>(tiles));
        first = columns.begin, tiles = 0;
      }
      tiles += count;
      until = last;
    }
    if (tiles > 0) add_full(first, tiles);
    covered = until;
    return i - begin;
  }

  void cover_clipped(int64_t covered) {
    const auto by_begin = [](const ClippedBand& a, const ClippedBand& b) { return a.begin < b.begin; };
    if (!std::is_sorted(clipped_.begin(), clipped_.end(), by_begin))
      std::sort(clipped_.begin(), clipped_.end(), by_begin);
    before_.column = -1;
    for (size_t i = 0; i < clipped_.size();) {
      const ClippedBand& band = clipped_[i];
      if (band.end <= covered) {
        ++i;
        continue;
      }
      const int64_t column = std::max(covered, aligned(band.begin));
      const bool last = i + 1 == clipped_.size();
      if (last && before_.column < 0) reach_last_band(column);
      const auto width_at = [&](int64_t at) { return last ? tiling_.width_of_first(band.end - at) : width_; };
      int64_t full = band.all_begin <= column ? full_tiles(column, band.all_end) : 0;
      if (full > 0 && width_at(column + (full - 1) * width_) < width_) --full;
      if (full > 0) {
        add_full(column, full);
        covered = column + full * width_;
        continue;
      }
      const int64_t width = width_at(column);
      covered = column + width;
      pieces_.clear();
      for (size_t j = i; j < clipped_.size() && clipped_[j].begin < covered; ++j)
        if (clipped_[j].end > column) pieces_.push_back(clipped_[j].piece(column, width));
      add_pieces(column);
    }
  }

  void reach_last_band(int64_t column) {
    before_.column = column;
    before_.full = last_is_full_ ? writer_.back() : typename Writer::Item{};
    before_.items = writer_.count() - (last_is_full_ ? 1 : 0);
    before_.sums = writer_.sums();
  }

  void add_full(int64_t column, int64_t tiles) {
    const int32_t at = place(column), count = static_cast<int32_t>(tiles);
    typename Writer::Item last = last_is_full_ ? writer_.back() : typename Writer::Item{};
    if (last_is_full_ && Writer::place(last) + last.code * step_ == at)
      writer_.extend_full(count);
    else
      writer_.push_full(at, count);
    last_is_full_ = true;
  }

  // A tile that shows pieces_.
  void add_pieces(int64_t column) {
    // Most tiles have one piece, and it is full only if it has no bounds.
    if (pieces_.size() > 1 || pieces_.front().rectangular()) {
      const int64_t columns = tiling_.on_grid() ? std::min(width_, tiling_.columns - column) : width_;
      int64_t area = 0;
      for (const TilePiece& piece : pieces_) area += piece.area();
      if (area == rows_ * columns) return add_full(column, 1);
    }
    writer_.push_partial(place(column), partials_.number_of(pieces_));
    last_is_full_ = false;
  }

  // There are fewer than 2^31 tokens, so 32-bit divisions suffice, which are faster.
  int32_t place(int64_t column) const {
    const auto at = static_cast<uint32_t>(column);
    return static_cast<int32_t>(alignment_ == 1 ? at : at / alignment_);
  }
  int64_t aligned(int64_t column) const { return int64_t{place(column)} * alignment_; }

  // Tiles from `column` on of whose columns all lie before `end`: on a grid, those of the mask.
  int64_t full_tiles(int64_t column, int64_t end) const {
    if (end <= column) return 0;
    if (end == end_of_grid_) end += width_ - 1;
    return static_cast<uint32_t>(end - column) / static_cast<uint32_t>(width_);
  }

  const BandList& bands_;
  const Tiling& tiling_;
  SweepRange range_;
  // A row tile of a block may have fewer rows. If there are rectangles alone, the missing ones are drawn
  // like the others, so that its tiles equal those of other row tiles.
  const bool extends_;
  const int64_t width_, end_of_grid_;  // -1: no grid
  const uint32_t alignment_;
  const int32_t step_;  // from a tile's place to the next one's
  PartialNumbers& partials_;
  Writer& writer_;
  Stretch<Writer> stretch_;
  int64_t first_end_ = 0;  // the smallest end of rows of active groups
  // Of the current row tile.
  int64_t rows_ = 0;
  std::vector<ClippedBand> clipped_;  // by `begin`
  typename Stretch<Writer>::Before before_;
  bool last_is_full_ = false;
  std::vector<TilePiece> pieces_;  // of a tile
};

}  // namespace longspan
