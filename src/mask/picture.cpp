// Pictures of masks: visible share per cell, and the characters that show it in a terminal.
#include "mask/picture.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace longspan {
namespace {

// The token ranges of the cells of a grid. A cell of less than one token shows the token in which it begins.
std::vector<Range> cells_of(int64_t tokens, int count) {
  std::vector<Range> cells(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = i * tokens / count, end = (i + 1) * tokens / count;
    cells[i] = {begin, std::max(begin + 1, end)};
  }
  return cells;
}

// The cells that intersect a range of tokens.
Range cells_that_meet(const std::vector<Range>& cells, const Range& tokens) {
  auto first = std::partition_point(cells.begin(), cells.end(),
                                    [&](const Range& cell) { return cell.end <= tokens.begin; });
  auto last =
      std::partition_point(first, cells.end(), [&](const Range& cell) { return cell.begin < tokens.end; });
  return {first - cells.begin(), last - cells.begin()};
}

}  // namespace

std::vector<uint8_t> density_grid(const Mask& mask, int rows, int columns) {
  LONGSPAN_CHECK(rows > 0 && columns > 0, "a grid of {} x {}", rows, columns);
  std::vector<uint8_t> grid(static_cast<size_t>(rows) * static_cast<size_t>(columns));
  if (mask.rows() == 0 || mask.columns() == 0) return grid;
  const auto row_cells = cells_of(mask.rows(), rows), column_cells = cells_of(mask.columns(), columns);
  std::vector<int64_t> areas(grid.size());
  for (const Band& band : mask.bands()) {
    const Range band_rows = cells_that_meet(row_cells, band.q);
    for (int64_t r = band_rows.begin; r < band_rows.end; ++r) {
      const Band slice = Band{intersection(band.q, row_cells[r]), band.k, band.lo, band.hi}.normalized();
      const Range slice_columns = cells_that_meet(column_cells, slice.k);
      for (int64_t c = slice_columns.begin; c < slice_columns.end; ++c)
        areas[r * columns + c] +=
            Band{slice.q, intersection(slice.k, column_cells[c]), slice.lo, slice.hi}.area();
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t area = areas[r * columns + c], all = row_cells[r].size() * column_cells[c].size();
      const auto share = std::lround(255.0 * static_cast<double>(area) / static_cast<double>(all));
      // Only exactly 0 and exactly all visible give 0 and 255.
      const long shade = area == 0 ? 0 : area == all ? 255 : std::clamp(share, 1l, 254l);
      grid[r * columns + c] = static_cast<uint8_t>(shade);
    }
  }
  return grid;
}

std::string text_picture(const Mask& mask, int rows) {
  // Small masks get one cell per token, two characters wide because characters are twice as high as wide.
  const auto lines = static_cast<int>(std::min<int64_t>(rows, mask.rows()));
  const auto columns = static_cast<int>(std::min<int64_t>(rows, mask.columns())) * 2;
  if (lines == 0 || columns == 0) return "(no tokens)\n";
  const auto grid = density_grid(mask, lines, columns);
  std::string text;
  for (int r = 0; r < lines; ++r) {
    for (int c = 0; c < columns; ++c) {
      const int shade = grid[static_cast<size_t>(r) * static_cast<size_t>(columns) + static_cast<size_t>(c)];
      text += shade == 0 ? "·" : shade < 86 ? "░" : shade < 171 ? "▒" : shade < 255 ? "▓" : "█";
    }
    text += '\n';
  }
  return text;
}

}  // namespace longspan
