// Pictures of masks, for reports and terminals.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mask/mask.h"

namespace longspan {

// How much of a mask is visible in each cell of a grid over it, row by row: 0 nothing, 255 all, and between
// them its share. The mask may be larger or smaller than the grid. Time: O(bands + cells they touch).
std::vector<uint8_t> density_grid(const Mask& mask, int rows, int columns);
inline std::vector<uint8_t> density_grid(const Mask& mask, int size) {
  return density_grid(mask, size, size);
}

// Lines of block characters, at most `rows` of them, each twice as many characters wide.
std::string text_picture(const Mask& mask, int rows = 32);

}  // namespace longspan
