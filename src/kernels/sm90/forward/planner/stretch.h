// Lowers consecutive row tiles all of whose rows see the same few bands: most row tiles of most masks.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/sm90/forward/planner/layers.h"
#include "kernels/sm90/forward/planner/map.h"

namespace longspan::sm90 {

// Lowers one row tile in full. The next ones follow from it as long as only the last band differs, which
// either ends further to the right with each row tile or moves as a whole. The rest of the band is then the
// same, and its last tiles are among a few that are known by the columns in them.
class StretchCover {
 public:
  static constexpr size_t kMostBands = 4;

  StretchCover(TileShape shape, LayerTable& layers, ForwardMap& out)
      : shape_(shape), layers_(layers), out_(out) {}

  // Lowers the row tiles of `rows`, the first of which begins at token `first`. All of them have all their
  // rows. Writes `rows`, and adds entries, tiles and steps to the map.
  void cover(std::span<const Band> bands, int64_t first, std::span<MapRow> rows);

 private:
  // The columns of a band that some row of the tile sees, and those that all rows see.
  struct Side {
    int64_t begin, end, all_begin, all_end;
    const Band* band;
  };
  // The state of lowering one row tile when it reached the last band.
  struct Mark {
    bool reached = false;
    int64_t column = 0;                       // no other band is left from here on
    int32_t entries = 0;                      // written so far
    int64_t full_column = 0, full_count = 0;  // full tiles that are not written yet
    int64_t tiles = 0, steps = 0;             // so far, including these
  };
  // The partial tiles at the end of a band, under its upper bound.
  struct Tail {
    int32_t count = 0;  // 0: not known yet
    int32_t steps = 0;
    std::array<MapEntry, 2> cuts;  // the second entry of each
  };

  void find_sides(std::span<const Band> bands, int64_t first);
  MapRow cover_alone(std::span<const Band> bands, int64_t first);
  int64_t grow(int64_t first, const MapRow& row, std::span<MapRow> rows);
  int64_t slide(int64_t first, const MapRow& row, std::span<MapRow> rows);
  const Tail& tail_of(int64_t columns) {
    const Tail& tail = tails_[static_cast<size_t>(columns)];
    return tail.count > 0 ? tail : draw_tail(columns);
  }
  const Tail& draw_tail(int64_t columns);

  // All bands but the last show the same of every row tile from the one at `first` on.
  bool others_stay(int64_t first) const {
    return std::all_of(sides_.begin(), sides_.begin() + static_cast<std::ptrdiff_t>(count_ - 1),
                       [&](const Side& side) {
                         const Band& band = *side.band;
                         return band.lo == kUnboundedBelow &&
                                (band.hi == kUnboundedAbove || first + band.hi + 1 >= band.k.end);
                       });
  }
  int64_t whole_tiles(int64_t columns) const {
    if (columns < shape_.columns) return 0;
    return static_cast<uint32_t>(columns) / static_cast<uint32_t>(shape_.columns);
  }
  // Makes room for `entries` entries in `entries_`, so that a row tile of no more entries lies there
  // contiguously.
  void make_room(size_t entries) {
    if (entries_.size() - waiting_ >= entries) return;
    out_.entries.insert(out_.entries.end(), entries_.begin(),
                        entries_.begin() + static_cast<std::ptrdiff_t>(waiting_));
    waiting_ = 0;
  }

  static constexpr int32_t kMostCopied = kEntryBatch - 6;  // entries, so that no padding is among them

  TileShape shape_;
  LayerTable& layers_;
  ForwardMap& out_;
  std::array<Side, kMostBands> sides_;  // by `begin`
  size_t count_ = 0;                    // of sides_
  Mark mark_;
  int64_t tiles_ = 0, steps_ = 0;     // of the row tile that was lowered in full
  std::vector<ClippedBand> clipped_;  // of the current row tile, as sides_
  std::vector<const ClippedBand*> hits_;
  size_t waiting_ = 0;
  std::array<MapEntry, 512> entries_;  // not yet in out_
  std::array<Tail, size_t{kMostSteps} * kStepKeys>
      tails_;  // by the columns of the first tile that the first row sees
};

}  // namespace longspan::sm90
