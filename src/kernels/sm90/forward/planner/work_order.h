// In which order the forward kernel's work items are handed out: pairs of a row tile and a unit, which is
// what one item covers of the heads. Shared by host and device code, so that a machine with no GPU tests it.
#pragma once

#include <cstdint>

namespace longspan::sm90 {

struct WorkPlace {
  int32_t unit = 0, position = 0;  // of the row tile in its mask's order, heaviest first
};

// First the heaviest row tiles, each for all units. Then section by section, so that the keys and values of a
// section's units stay in L2: its row tiles in their order, each for all units of the section.
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
