// Lowers consecutive row tiles all of whose rows see the same few bands: most row tiles of most masks.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kernels/sm90/forward/planner/layers.h"
#include "kernels/sm90/forward/planner/map.h"

namespace longspan::sm90 {

// A row tile that was lowered in full, and the state of that when it reached the last band.
struct LoweredRow {
  MapRow row;
  int64_t tiles = 0, steps = 0;
  int64_t last_column = -1;  // no other band is left from here on; -1: the last band was not reached
  MapEntry full;             // the run of full tiles that ends before it; code 0: none
  int32_t entries_before = 0;
  int64_t tiles_before = 0, steps_before = 0;  // including those of `full`
};

// The next row tiles follow from one as long as only the last band differs, which either ends further to the
// right with each row tile or moves as a whole. The rest of the band is then the same, and its last tiles are
// among a few that are known by the columns in them.
class Stretch {
 public:
  static constexpr size_t kMostBands = 4;

  Stretch(TileShape shape, LayerTable& layers, ForwardMap& out) : shape_(shape), layers_(layers), out_(out) {}

  // Lowers row tiles of `rows`, which come after `one` and see the same bands with all their rows. Writes
  // `rows`, and adds entries, tiles and steps to the map. Returns how many it has lowered. `bands` are those
  // of the first row tile, by `begin`, and its entries are the last ones of the map.
  int64_t follow(const LoweredRow& one, std::span<const ClippedBand> bands, std::span<MapRow> rows);

 private:
  // The partial tiles at the end of a band, under its upper bound.
  struct Tail {
    int32_t count = 0;  // 0: not known yet
    int32_t steps = 0;
    std::array<MapEntry, 2> cuts;  // the second entry of each
  };

  int64_t grow(const LoweredRow& one, const ClippedBand& last, std::span<MapRow> rows);
  int64_t slide(const LoweredRow& one, const ClippedBand& last, std::span<MapRow> rows);
  const Tail& tail_of(int64_t columns) {
    const Tail& tail = tails_[static_cast<size_t>(columns)];
    return tail.count > 0 ? tail : draw_tail(columns);
  }
  const Tail& draw_tail(int64_t columns);

  static constexpr int32_t kMostCopied = kEntryBatch - 6;  // entries, so that no padding is among them

  TileShape shape_;
  LayerTable& layers_;
  ForwardMap& out_;
  // By the columns of the first tile that the first row sees.
  std::array<Tail, size_t{kMostSteps} * kStepKeys> tails_;
};

}  // namespace longspan::sm90
