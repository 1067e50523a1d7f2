// Row operations on the tensors of one device, which the executor uses besides attention and exchange.
#pragma once

#include <cstdint>
#include <span>

#include "longspan/base.h"

namespace longspan {

// All rows of a tensor, with lse [heads, lse_stride] if there is one.
struct Rows {
  DeviceKind kind = DeviceKind::kCpu;
  TensorView tensor;
  float* lse = nullptr;
  int64_t lse_stride = 0;
};

// Pairs rows [from, from + rows) of one tensor with rows [to, to + rows) of another.
struct RowSpan {
  int64_t to = 0, from = 0, rows = 0;
};

enum class RowOperation : uint8_t {
  kCopy,   // to = from, converted to the dtype of `to`; lse too if `to` has one
  kAdd,    // to += from; `to` is f32
  kMerge,  // merges partial results (o, lse) over disjoint sets of keys into `to`, which is f32
  kClear,  // the neutral element: zeros, and lse = -inf if there is one; `from` is not read
};

// Applies the operation to all spans of all heads. On a GPU it is queued in the stream, with one launch per
// hundred spans or so.
void apply(RowOperation operation, const Rows& to, const Rows& from, std::span<const RowSpan> spans,
           Stream stream);

// Equally many rows of two tensors with equally many heads.
struct RowPair {
  TensorView to, from;
};

// kCopy or kAdd for all pairs; no two may share a row of `to`, and lse is unchanged. On a GPU, pairs of the
// same strides and dtypes share launches.
void apply_pairs(RowOperation operation, DeviceKind kind, std::span<const RowPair> pairs, Stream stream);

// The GPU versions; they throw in a build without CUDA.
void apply_pairs_cuda(RowOperation operation, std::span<const RowPair> pairs, Stream stream);
void apply_cuda(RowOperation operation, const Rows& to, const Rows& from, std::span<const RowSpan> spans,
                Stream stream);

}  // namespace longspan
