// The order of the forward kernel's work items. An item is a row tile and a unit, the heads that one item
// covers. Shared by host and device code.
#pragma once

#include <cstdint>

namespace longspan::sm90 {

struct WorkPlace {
  int32_t unit = 0, position = 0;  // of the row tile in its mask's order, heaviest first
};

// The heaviest row tiles come first, each for all units. Then come sections of units whose K and V stay in
// L2: each row tile in order, for all units of the section.
struct WorkOrder {
  int32_t row_tiles = 0, units = 0;
  int32_t section_units = 0;
  int32_t heavy_rows = 0;

  constexpr int32_t items() const { return row_tiles * units; }

  constexpr WorkPlace place(int32_t index) const {
    int32_t first_unit = 0, first_row = 0, width = units;
    if (const int32_t heavy = heavy_rows * units; index >= heavy) {
      first_row = heavy_rows;
      index -= heavy;
      const int32_t of_section = section_units * (row_tiles - heavy_rows);
      const int32_t section = index / of_section;
      index -= section * of_section;
      first_unit = section * section_units;
      width = units - first_unit < section_units ? units - first_unit : section_units;
    }
    const int32_t row = index / width;
    return {first_unit + (index - row * width), first_row + row};
  }
};

}  // namespace longspan::sm90
