// Lowers consecutive row tiles all of whose rows see the same few bands: most row tiles of most masks.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "mask/lowering/clipped_band.h"
#include "mask/lowering/partial_table.h"
#include "mask/lowering/tiling.h"

namespace longspan {

// What a row tile's list adds up to.
struct ListSums {
  int32_t tiles = 0;
  int32_t steps = 0;    // a measure of these tiles' widths, if the writer has one
  int32_t partial = 0;  // of these tiles, if the writer counts them
  friend ListSums operator+(const ListSums& a, const ListSums& b) {
    return {a.tiles + b.tiles, a.steps + b.steps, a.partial + b.partial};
  }
};

// The next row tiles follow from one as long as only the last band differs, which either ends further to the
// right with each row tile or moves as a whole. The rest of the band is then the same, and its last tiles are
// among a few that are known by the columns in them.
template <class Writer>
class Stretch {
 public:
  using Item = typename Writer::Item;
  static constexpr size_t kMostBands = 4;

  // The state of a row tile that is lowered in full, when only its last band was left.
  struct Before {
    int64_t column = -1;  // from here on; -1: the last band was not reached
    size_t items = 0;     // of the list, before `full`
    Item full;            // the run of full tiles that ends before it; code 0: none
    ListSums sums;        // including those of `full`
  };

  Stretch(const Tiling& tiling, PartialNumbers& partials, Writer& writer)
      : height_(tiling.shape.rows),
        width_(tiling.shape.columns),
        alignment_(tiling.alignment),
        tiling_(tiling),
        partials_(partials),
        writer_(writer) {}

  // Writes up to `count` row tiles after the last one, and returns how many. All see the same bands with all
  // their rows; `bands` are those of the last one, by `begin`.
  int64_t follow(const Before& before, std::span<const ClippedBand> bands, int64_t count) {
    if (before.column < 0 || writer_.last_count() > kMostItems) return 0;
    const auto stays = [](const ClippedBand& band) {  // shows the same of all row tiles from this one on
      return band.lo == kUnboundedBelow && (band.hi == kUnboundedAbove || band.hi + 1 >= band.k_end);
    };
    if (!std::all_of(bands.begin(), bands.end() - 1, stays)) return 0;
    // No row sees the band's last column, so the end of each row tile's part is hidden from some rows.
    const ClippedBand& last = bands.back();
    if (last.hi == kUnboundedAbove) return 0;
    count = std::min(count, (last.k_end - last.hi - height_ - 1) / height_);
    if (count <= 0) return 0;
    const int64_t grown = grow(before, last, count);
    return grown > 0 ? grown : slide(before, last, count);
  }

 private:
  static constexpr size_t kMostItems = Writer::kRoom - 6;  // full tiles and two partial ones may follow

  // The partial tiles at the end of a band, under its upper bound.
  struct Tail {
    int32_t tiles = 0;  // 0: not known yet
    int32_t step = 0;   // from the first one's place to the second one's
    ListSums sums;
    std::array<typename Writer::PartialItems, 2> items;
  };

  // Row tiles that see more of the last band, under its upper bound, and the same of all others.
  int64_t grow(const Before& before, const ClippedBand& last, int64_t count) {
    // The columns of the last band that the first row sees and no other band shows.
    const int64_t columns = last.all_end - before.column;
    if (columns < 0 || height_ > width_ || last.begin > before.column) return 0;
    if (last.lo != kUnboundedBelow) count = std::min(count, (last.k_begin - last.lo - height_ + 1) / height_);
    if (count <= 0) return 0;

    tails_.resize(static_cast<size_t>(width_));
    std::array<Item, kMostItems + 1> list;
    size_t same = before.items;
    for (size_t i = 0; i < same; ++i) list[i] = writer_.last_item(i);
    const auto first = static_cast<int32_t>(before.column / alignment_),
               step = static_cast<int32_t>(width_ / alignment_);
    int32_t place = first, fulls = 0;
    Item full = before.full;
    if (full.code > 0 && Writer::place(full) + full.code * step == first)
      place = Writer::place(full), fulls = full.code;
    else if (full.code > 0)
      list[same++] = full;

    const auto wide = static_cast<int32_t>(width_), high = static_cast<int32_t>(height_);
    auto whole = static_cast<int32_t>(columns / width_), rest = static_cast<int32_t>(columns % width_);
    for (int64_t i = 0; i < count; ++i) {
      rest += high;
      if (rest >= wide) rest -= wide, ++whole;
      const Tail& tail = tail_of(rest);
      Item* to = writer_.room();
      // By parts: a compiler's block copy of a few items takes longer.
      for (size_t i = 0; i < same; ++i) *to++ = {Writer::place(list[i]), list[i].code};
      if (fulls + whole > 0) *to++ = {place, fulls + whole};
      for (int32_t t = 0; t < tail.tiles; ++t) {
        const auto& partial = tail.items[static_cast<size_t>(t)];
        *to++ = {first + whole * step + t * tail.step, partial.front().code};
        for (size_t p = 1; p < partial.size(); ++p) *to++ = partial[p];
      }
      writer_.end(to, before.sums + writer_.sums_of_full(whole) + tail.sums);
    }
    return count;
  }

  // Row tiles for which the last band has only moved to the right, and the others not at all.
  int64_t slide(const Before& before, const ClippedBand& last, int64_t count) {
    if (last.lo == kUnboundedBelow || last.lo < last.k_begin || height_ % alignment_ != 0) return 0;
    if (before.column != last.begin / alignment_ * alignment_) return 0;
    Item full = before.full;
    if (full.code > 0 && Writer::place(full) * alignment_ + full.code * width_ == before.column) return 0;

    std::array<Item, kMostItems> list;
    const size_t items = writer_.last_count(), same = before.items + (full.code > 0 ? 1 : 0);
    for (size_t i = 0; i < items; ++i) list[i] = writer_.last_item(i);
    std::array<int32_t, kMostItems> steps{};  // of the items' places
    for (size_t i = same; i < items; i += Writer::items_at(list[i]))
      steps[i] = static_cast<int32_t>(height_ / alignment_);
    const ListSums sums = writer_.sums();
    for (int32_t n = 1; n <= count; ++n) {
      Item* to = writer_.room();
      for (size_t i = 0; i < items; ++i) to[i] = {Writer::place(list[i]) + n * steps[i], list[i].code};
      writer_.end(to + items, sums);
    }
    return count;
  }

  const Tail& tail_of(int32_t columns) {
    Tail& tail = tails_[static_cast<size_t>(columns)];
    if (tail.tiles == 0) draw(tail, columns);
    return tail;
  }

  // The last row sees height - 1 columns more than the first.
  void draw(Tail& tail, int64_t columns) {
    const ClippedBand band({{0, height_}, {0, 2 * width_}, kUnboundedBelow, columns - 1}, {0, height_});
    const int64_t end = columns + height_ - 1, width = tiling_.width_of_first(end);
    tail.step = static_cast<int32_t>(width / alignment_);
    for (int64_t column = 0; column < end; column += width) {
      const TilePiece piece = band.piece(column, width);
      const int32_t number = partials_.number_of({&piece, 1});
      tail.items[static_cast<size_t>(tail.tiles++)] = writer_.partial(number);
      tail.sums = tail.sums + writer_.sums_of_partial(number);
    }
  }

  const int64_t height_, width_, alignment_;
  const Tiling& tiling_;
  PartialNumbers& partials_;
  Writer& writer_;
  std::vector<Tail> tails_;  // by the columns of the first tile that the first row sees
};

}  // namespace longspan
