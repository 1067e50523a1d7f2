// Pictures of masks, for reports and terminals.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "mask/mask.h"

namespace longspan {

// The visible share of each cell of a grid over the mask, row by row: 0 is none, 255 is all. The mask may be
// larger or smaller than the grid. Time: O(bands + touched cells).
std::vector<uint8_t> density_grid(const Mask& mask, int rows, int columns);
inline std::vector<uint8_t> density_grid(const Mask& mask, int size) {
  return density_grid(mask, size, size);
}

// Lines of block characters: at most `rows` lines, each twice as many characters wide.
std::string text_picture(const Mask& mask, int rows = 32);

}  // namespace longspan
