// Lowers row tiles that follow each other and of which the same few bands show all rows: most row tiles of
// most masks.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/sm90/forward/planner/layers.h"
#include "kernels/sm90/forward/planner/map.h"

namespace longspan::sm90 {

// A row tile is lowered alone first. Where the others differ from it in the last band alone, which either
// ends further to the right from row tile to row tile or moves there as a whole, they follow from it: what is
// left of the band is the same, or of the band's last tile one of few that are known by the columns in it.
class StretchCover {
 public:
  static constexpr size_t kMostBands = 4;

  StretchCover(TileShape shape, LayerTable& layers, ForwardMap& out)
      : shape_(shape), layers_(layers), out_(out) {}

  // The row tiles of `rows`, whose first begins at token `first`: all are whole. Their places in `rows` are
  // written; entries, tiles and steps are added to the map.
  void cover(std::span<const Band> bands, int64_t first, std::span<MapRow> rows);

 private:
  // What a band shows of a row tile, in columns: those that some row sees, and those that all do.
  struct Side {
    int64_t begin, end, all_begin, all_end;
    const Band* band;
  };
  // The row tile that was lowered alone, when it had come to the last band.
  struct Mark {
    bool reached = false;
    int64_t column = 0;                       // from which on there was nothing but this band
    int32_t entries = 0;                      // until then
    int64_t full_column = 0, full_count = 0;  // whole tiles that were not among them yet
    int64_t tiles = 0, steps = 0;             // until then, with these
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

  // All but the last band show the same of all row tiles from that at `first` on.
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
  // Of at least so many entries, in `entries_`, so that a row tile that has no more is found there in one
  // piece.
  void make_room(size_t entries) {
    if (entries_.size() - waiting_ >= entries) return;
    out_.entries.insert(out_.entries.end(), entries_.begin(),
                        entries_.begin() + static_cast<std::ptrdiff_t>(waiting_));
    waiting_ = 0;
  }

  static constexpr int32_t kMostCopied =
      kEntryBatch - 6;  // entries, so that none is there for the batch's sake

  TileShape shape_;
  LayerTable& layers_;
  ForwardMap& out_;
  std::array<Side, kMostBands> sides_;  // by `begin`
  size_t count_ = 0;                    // of these
  Mark mark_;
  int64_t tiles_ = 0, steps_ = 0;     // of the row tile that was lowered alone
  std::vector<ClippedBand> clipped_;  // of the current row tile, as `sides_`
  std::vector<const ClippedBand*> hits_;
  size_t waiting_ = 0;
  std::array<MapEntry, 512> entries_;               // on their way to out_
  std::array<Tail, kMostSteps * kStepKeys> tails_;  // by the columns that the first row sees of the first one
};

}  // namespace longspan::sm90
