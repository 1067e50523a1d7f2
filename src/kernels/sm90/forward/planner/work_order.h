// The order of the forward kernel's work items. An item is a row tile and a unit, the heads that one item
// covers. Shared by host and device code.
#pragma once

#include <cstdint>

namespace longspan::sm90 {

struct WorkPlace {
  int32_t unit = 0, position = 0;  // of the row tile in its mask's order, heaviest first
};

// Sections of units whose K and V stay in L2 follow each other: each row tile in order, for all units of the
// section. The heaviest row tiles of the last sections come before all that, or they would end last.
struct WorkOrder {
  int32_t row_tiles = 0, units = 0;
  int32_t section_units = 0;
  int32_t heavy_rows = 0, late_units = 0;  // so many row tiles of so many last units come first

  constexpr int32_t items() const { return row_tiles * units; }

  constexpr WorkPlace place(int32_t index) const {
    const int32_t early_units = units - late_units;
    if (index < heavy_rows * late_units) {
      const int32_t row = index / late_units;
      return {early_units + (index - row * late_units), row};
    }
    index -= heavy_rows * late_units;
    int32_t first_unit = 0, end_unit = early_units, first_row = 0;
    if (const int32_t early = early_units * row_tiles; index >= early) {
      first_unit = early_units;
      end_unit = units;
      first_row = heavy_rows;
      index -= early;
    }
    const int32_t of_section = section_units * (row_tiles - first_row);
    const int32_t section = index / of_section;
    index -= section * of_section;
    first_unit += section * section_units;
    const int32_t width = end_unit - first_unit < section_units ? end_unit - first_unit : section_units;
    const int32_t row = index / width;
    return {first_unit + (index - row * width), first_row + row};
  }
};

}  // namespace longspan::sm90
