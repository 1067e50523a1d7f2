// Row operations on tensors of one device: what a schedule's executor does besides attention and exchange.
#pragma once

#include <cstdint>

#include "base/device.h"
#include "base/tensor.h"

namespace longspan {

// Where rows [row, row + rows) of all heads of a tensor lie. lse, where there is one, is [heads, lse_stride].
struct Rows {
  TensorView tensor;
  int64_t row = 0;
  float* lse = nullptr;
  int64_t lse_stride = 0;
};

// to = from, converted to the dtype of `to`. The lse is copied where `to` has one.
void copy_rows(const Rows& to, const Rows& from, int64_t rows, Stream stream);

// to += from. `to` is f32.
void add_rows(const Rows& to, const Rows& from, int64_t rows, Stream stream);

// Merges two partial results (o, lse) over disjoint sets of keys into the result over both. `to` is f32.
void merge_rows(const Rows& to, const Rows& from, int64_t rows, Stream stream);

// Rows of the neutral element: zeros, and lse = -inf where there is one.
void clear_rows(const Rows& to, int64_t rows, Stream stream);

}  // namespace longspan
