// Row operations on tensors of one device: what a schedule's executor does besides attention and exchange.
#pragma once

#include <cstdint>
#include <span>

#include "base/device.h"
#include "base/tensor.h"

namespace longspan {

// All rows of a tensor; lse, where there is one, is [heads, lse_stride].
struct Rows {
  DeviceKind kind = DeviceKind::kCpu;
  TensorView tensor;
  float* lse = nullptr;
  int64_t lse_stride = 0;
};

// Rows [from, from + rows) of one tensor with rows [to, to + rows) of another.
struct RowSpan {
  int64_t to = 0, from = 0, rows = 0;
};

enum class RowOperation : uint8_t {
  kCopy,   // to = from, converted to the dtype of `to`; lse where `to` has one
  kAdd,    // to += from; `to` is f32
  kMerge,  // two partial results (o, lse) over disjoint sets of keys: `to`, f32, becomes that over both
  kClear,  // the neutral element: zeros, and lse = -inf where there is one; `from` is not read
};

// For all spans, of all heads. On a GPU: put into the stream, one launch for each hundred spans.
void apply(RowOperation operation, const Rows& to, const Rows& from, std::span<const RowSpan> spans,
           Stream stream);

// Equally many rows of two tensors, of equally many heads.
struct RowPair {
  TensorView to, from;
};

// kCopy or kAdd for all pairs, no two of which have a row of `to` in common; lse stays as it is. On a GPU as
// few launches as their shapes allow: pairs of the same strides and dtypes go together.
void apply_pairs(RowOperation operation, DeviceKind kind, std::span<const RowPair> pairs, Stream stream);

// The same on a GPU; throws in a build without CUDA.
void apply_pairs_cuda(RowOperation operation, std::span<const RowPair> pairs, Stream stream);
void apply_cuda(RowOperation operation, const Rows& to, const Rows& from, std::span<const RowSpan> spans,
                Stream stream);

}  // namespace longspan
