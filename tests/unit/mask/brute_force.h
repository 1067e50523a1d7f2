// Masks as boolean matrices for comparison, and generators of random masks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include <rapidcheck.h>

#include "mask/mask.h"

namespace longspan {

// A property is cheap at these sizes: test 1000 samples unless the environment says otherwise.
inline const int kPropertyTries = setenv("RC_PARAMS", "max_success=1000", 0);

struct Matrix {
  int64_t rows = 0, columns = 0;
  std::vector<uint8_t> cells;

  Matrix(int64_t rows, int64_t columns)
      : rows(rows), columns(columns), cells(static_cast<size_t>(rows * columns)) {}
  uint8_t& at(int64_t row, int64_t column) { return cells[static_cast<size_t>(row * columns + column)]; }
  uint8_t at(int64_t row, int64_t column) const { return cells[static_cast<size_t>(row * columns + column)]; }
  int64_t area() const { return std::count(cells.begin(), cells.end(), 1); }
  friend bool operator==(const Matrix&, const Matrix&) = default;
};

// By the definition of a band only.
inline bool shows(const Band& band, int64_t row, int64_t column) {
  return band.q.begin <= row && row < band.q.end && band.k.begin <= column && column < band.k.end &&
         band.lo <= column - row && column - row <= band.hi;
}

// Counts how often each pair is shown; a disjoint list gives only 0 and 1.
template <class Bands>
Matrix matrix_of_bands(int64_t rows, int64_t columns, const Bands& bands) {
  Matrix matrix(rows, columns);
  for (const Band& band : bands)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) matrix.at(i, j) += shows(band, i, j);
  return matrix;
}

inline Matrix matrix_of(const Mask& mask) {
  return matrix_of_bands(mask.rows(), mask.columns(), mask.bands());
}

inline Range random_range(int64_t limit) {
  const auto a = *rc::gen::inRange<int64_t>(0, limit + 1);
  const auto b = *rc::gen::inRange<int64_t>(0, limit + 1);
  return {std::min(a, b), std::max(a, b)};
}

inline Band random_band(int64_t rows, int64_t columns) {
  Band band{random_range(rows), random_range(columns)};
  const auto kind = *rc::gen::inRange(0, 4);
  const auto a = *rc::gen::inRange<int64_t>(-rows - 2, columns + 3);
  const auto b = *rc::gen::inRange<int64_t>(-rows - 2, columns + 3);
  if (kind & 1) band.lo = kind == 3 ? std::min(a, b) : a;
  if (kind & 2) band.hi = kind == 3 ? std::max(a, b) : b;
  return band;
}

// Random bands; each is kept if it is disjoint from those already kept.
inline Mask random_mask(int64_t rows, int64_t columns, int attempts) {
  std::vector<Band> bands;
  Matrix shown(rows, columns);
  for (int n = 0; n < attempts; ++n) {
    const Band band = random_band(rows, columns);
    bool meets = false;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) meets = meets || (shows(band, i, j) && shown.at(i, j));
    if (meets) continue;
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j) shown.at(i, j) |= shows(band, i, j);
    bands.push_back(band);
  }
  return Mask(rows, columns, bands);
}

inline Mask random_mask() {
  return random_mask(*rc::gen::inRange<int64_t>(0, 40), *rc::gen::inRange<int64_t>(0, 40),
                     *rc::gen::inRange(0, 12));
}

// Disjoint ranges of [0, limit) in any order, not necessarily covering it; some may be empty.
inline std::vector<Range> random_ranges(int64_t limit) {
  std::vector<int64_t> cuts =
      *rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(0, limit + 1));
  std::sort(cuts.begin(), cuts.end());
  std::vector<Range> ranges;
  for (size_t i = 1; i < cuts.size(); ++i)
    if (*rc::gen::inRange(0, 4) != 0) ranges.push_back({cuts[i - 1], cuts[i]});
  for (size_t i = ranges.size(); i-- > 1;) std::swap(ranges[i], ranges[*rc::gen::inRange<size_t>(0, i + 1)]);
  return ranges;
}

}  // namespace longspan
