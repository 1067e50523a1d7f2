// Row operations on a GPU: a warp processes a row of one head in f32, four elements per lane. The span list
// is a kernel parameter, so nothing needs an upload.
#include <algorithm>
#include <vector>

#include "base/cuda/cuda.h"
#include "base/cuda/element.cuh"
#include "base/error.h"
#include "cp/execute/rows.h"

namespace longspan {
namespace {

using cuda::from_f32, cuda::to_f32;

constexpr int kSpans = 128;  // per launch
constexpr int kThreads = 256, kLanes = 32, kWarps = kThreads / kLanes;
constexpr int kVector = 4;  // elements per lane and step

struct Spans {
  int count = 0, rows = 0;       // total rows of all spans
  int begin[kSpans];             // first row of each span within the launch
  int to[kSpans], from[kSpans];  // first rows in the tensors
};

template <class T>
struct Operand {
  T* data;
  int64_t token_stride, head_stride;
  float* lse;
  int64_t lse_stride;

  __device__ T* row(int64_t token, int64_t head) const {
    return data + token * token_stride + head * head_stride;
  }
};

// The last span or pair that begins at or before the position.
template <class Begins, class Position>
__device__ int last_begun(const Begins& begins, int count, Position position) {
  int low = 0, high = count - 1;
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (begins[middle] <= position) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

template <class T>
struct alignas(kVector * sizeof(T)) Vector {
  T x[kVector];
};

// kVectors: rows are aligned and head_dim is a multiple of kVector.
template <RowOperation operation, bool kVectors, class Out, class In>
__global__ void __launch_bounds__(kThreads)
    rows_kernel(Operand<Out> out, Operand<In> in, const __grid_constant__ Spans spans, int heads,
                int head_dim) {
  constexpr bool kReads = operation != RowOperation::kClear;
  constexpr bool kSums = operation == RowOperation::kAdd || operation == RowOperation::kMerge;
  constexpr int kStep = kVectors ? kVector : 1;
  const int lane = threadIdx.x % kLanes;
  const int64_t warps = int64_t{gridDim.x} * kWarps, items = int64_t{spans.rows} * heads;
  for (int64_t item = int64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes; item < items; item += warps) {
    const int position = static_cast<int>(item / heads), head = static_cast<int>(item % heads);
    const int span = last_begun(spans.begin, spans.count, position);
    const int64_t to_row = spans.to[span] + (position - spans.begin[span]);
    const int64_t from_row = spans.from[span] + (position - spans.begin[span]);
    Out* const target = out.row(to_row, head);
    const In* const source = kReads ? in.row(from_row, head) : nullptr;

    // Weights of the old and the new part; attention/merge.h derives them.
    float keep = 1, take = 1, lse = 0;
    if constexpr (operation == RowOperation::kMerge) {
      const float mine = out.lse[head * out.lse_stride + to_row];
      const float other = in.lse[head * in.lse_stride + from_row];
      if (other == -INFINITY) continue;
      if (mine == -INFINITY) {
        keep = 0;
        lse = other;
      } else {
        const float hi = fmaxf(mine, other), lo = fminf(mine, other);
        const float t = isnan(mine + other) ? mine + other : expf(lo - hi);
        const float of_hi = 1 / (1 + t), of_lo = t / (1 + t);
        keep = mine >= other ? of_hi : of_lo;
        take = mine >= other ? of_lo : of_hi;
        lse = hi + log1pf(t);
      }
      __syncwarp();  // all lanes have read the row's lse before lane 0 writes it
    }
    for (int d = lane * kStep; d < head_dim; d += kLanes * kStep) {
      float x[kStep];
      if constexpr (kVectors) {
        Vector<In> read{};
        if constexpr (kReads) read = *reinterpret_cast<const Vector<In>*>(source + d);
        Vector<Out> old{};
        if constexpr (kSums) old = *reinterpret_cast<const Vector<Out>*>(target + d);
        Vector<Out> made;
        for (int i = 0; i < kStep; ++i) {
          x[i] = kReads ? to_f32(read.x[i]) : 0.f;
          if constexpr (operation == RowOperation::kAdd) x[i] += to_f32(old.x[i]);
          // avoid 0 * NaN from uninitialised rows
          if constexpr (operation == RowOperation::kMerge)
            x[i] = keep == 0 ? take * x[i] : keep * to_f32(old.x[i]) + take * x[i];
          made.x[i] = from_f32<Out>(x[i]);
        }
        *reinterpret_cast<Vector<Out>*>(target + d) = made;
      } else {
        x[0] = 0;
        if constexpr (kReads) x[0] = to_f32(source[d]);
        if constexpr (operation == RowOperation::kAdd) x[0] += to_f32(target[d]);
        if constexpr (operation == RowOperation::kMerge)
          x[0] = keep == 0 ? take * x[0] : keep * to_f32(target[d]) + take * x[0];
        target[d] = from_f32<Out>(x[0]);
      }
    }
    if (lane == 0 && out.lse != nullptr) {
      float* const place = &out.lse[head * out.lse_stride + to_row];
      if constexpr (operation == RowOperation::kMerge) *place = lse;
      if constexpr (operation == RowOperation::kCopy) *place = in.lse[head * in.lse_stride + from_row];
      if constexpr (operation == RowOperation::kClear) *place = -INFINITY;
    }
  }
}

constexpr int kPairs = 96;  // per launch

// Rows of several pairs that share strides; begin[i] is the index of pair i's first row.
struct Pairs {
  int count = 0;
  int64_t rows = 0;
  int64_t begin[kPairs];
  void* to[kPairs];
  const void* from[kPairs];
};
struct Strides {
  int64_t to_token, to_head, from_token, from_head;
  friend bool operator==(const Strides&, const Strides&) = default;
};

template <RowOperation operation, bool kVectors, class Out, class In>
__global__ void __launch_bounds__(kThreads)
    pairs_kernel(const __grid_constant__ Pairs pairs, Strides strides, int heads, int head_dim) {
  constexpr int kStep = kVectors ? kVector : 1;
  const int lane = threadIdx.x % kLanes;
  const int64_t warps = int64_t{gridDim.x} * kWarps, items = pairs.rows * heads;
  for (int64_t item = int64_t{blockIdx.x} * kWarps + threadIdx.x / kLanes; item < items; item += warps) {
    const int64_t position = item / heads, head = item % heads;
    const int pair = last_begun(pairs.begin, pairs.count, position);
    const int64_t row = position - pairs.begin[pair];
    Out* const target = static_cast<Out*>(pairs.to[pair]) + row * strides.to_token + head * strides.to_head;
    const In* const source =
        static_cast<const In*>(pairs.from[pair]) + row * strides.from_token + head * strides.from_head;
    for (int d = lane * kStep; d < head_dim; d += kLanes * kStep) {
      if constexpr (kVectors) {
        const auto read = *reinterpret_cast<const Vector<In>*>(source + d);
        Vector<Out> made;
        if constexpr (operation == RowOperation::kAdd)
          made = *reinterpret_cast<const Vector<Out>*>(target + d);
        for (int i = 0; i < kStep; ++i) {
          float x = to_f32(read.x[i]);
          if constexpr (operation == RowOperation::kAdd) x += to_f32(made.x[i]);
          made.x[i] = from_f32<Out>(x);
        }
        *reinterpret_cast<Vector<Out>*>(target + d) = made;
      } else {
        float x = to_f32(source[d]);
        if constexpr (operation == RowOperation::kAdd) x += to_f32(target[d]);
        target[d] = from_f32<Out>(x);
      }
    }
  }
}

template <class T>
Operand<T> operand_of(const Rows& rows) {
  return {static_cast<T*>(rows.tensor.data), rows.tensor.token_stride, rows.tensor.head_stride, rows.lse,
          rows.lse_stride};
}

bool fits_vectors(const TensorView& view) {
  const auto bytes = kVector * size_of(view.dtype);
  return view.head_dim % kVector == 0 && view.token_stride % kVector == 0 &&
         view.head_stride % kVector == 0 && reinterpret_cast<uintptr_t>(view.data) % bytes == 0;
}

template <RowOperation operation, class Out, class In>
void launch(const Rows& to, const Rows& from, const Spans& spans, Stream stream) {
  const bool vectors =
      fits_vectors(to.tensor) && (operation == RowOperation::kClear || fits_vectors(from.tensor));
  const auto heads = static_cast<int>(to.tensor.heads), head_dim = static_cast<int>(to.tensor.head_dim);
  const int64_t items = int64_t{spans.rows} * heads;
  if (items == 0) return;
  constexpr int64_t kMostBlocks = 132 * 16;
  const auto blocks = static_cast<unsigned>(std::min((items + kWarps - 1) / kWarps, kMostBlocks));
  const cudaStream_t raw = cuda::raw(stream);
  if (vectors) {
    rows_kernel<operation, true, Out, In>
        <<<blocks, kThreads, 0, raw>>>(operand_of<Out>(to), operand_of<In>(from), spans, heads, head_dim);
  } else {
    rows_kernel<operation, false, Out, In>
        <<<blocks, kThreads, 0, raw>>>(operand_of<Out>(to), operand_of<In>(from), spans, heads, head_dim);
  }
  LONGSPAN_CUDA_LAUNCHED();
}

template <class Visit>
void with_type(DType dtype, const Visit& visit) {
  cuda::with_element_type(dtype, "rows that are exchanged", visit);
}

void launch(RowOperation operation, const Rows& to, const Rows& from, const Spans& spans, Stream stream) {
  switch (operation) {
    case RowOperation::kCopy:
      return with_type(to.tensor.dtype, [&](auto out) {
        with_type(from.tensor.dtype, [&](auto in) {
          launch<RowOperation::kCopy, decltype(out), decltype(in)>(to, from, spans, stream);
        });
      });
    case RowOperation::kAdd:
      return with_type(from.tensor.dtype, [&](auto in) {
        launch<RowOperation::kAdd, float, decltype(in)>(to, from, spans, stream);
      });
    case RowOperation::kMerge:
      return with_type(from.tensor.dtype, [&](auto in) {
        launch<RowOperation::kMerge, float, decltype(in)>(to, from, spans, stream);
      });
    case RowOperation::kClear:
      return with_type(to.tensor.dtype, [&](auto out) {
        launch<RowOperation::kClear, decltype(out), decltype(out)>(to, to, spans, stream);
      });
  }
}

// The properties shared by all pairs of a launch.
struct Shape {
  DType to, from;
  Strides strides;
  int64_t heads, head_dim;
  bool vectors;
  friend bool operator==(const Shape&, const Shape&) = default;
};
Shape shape_of(const RowPair& pair) {
  const auto& [to, from] = pair;
  return {to.dtype, from.dtype,  {to.token_stride, to.head_stride, from.token_stride, from.head_stride},
          to.heads, to.head_dim, fits_vectors(to) && fits_vectors(from)};
}

template <RowOperation operation, class Out, class In>
void launch(const Pairs& pairs, const Shape& shape, Stream stream) {
  const int64_t items = pairs.rows * shape.heads;
  if (items == 0) return;
  constexpr int64_t kMostBlocks = 132 * 16;
  const auto blocks = static_cast<unsigned>(std::min((items + kWarps - 1) / kWarps, kMostBlocks));
  const auto kernel =
      shape.vectors ? pairs_kernel<operation, true, Out, In> : pairs_kernel<operation, false, Out, In>;
  kernel<<<blocks, kThreads, 0, cuda::raw(stream)>>>(pairs, shape.strides, static_cast<int>(shape.heads),
                                                     static_cast<int>(shape.head_dim));
  LONGSPAN_CUDA_LAUNCHED();
}

void launch(RowOperation operation, const Pairs& pairs, const Shape& shape, Stream stream) {
  with_type(shape.from, [&](auto in) {
    if (operation == RowOperation::kAdd) {
      launch<RowOperation::kAdd, float, decltype(in)>(pairs, shape, stream);
    } else {
      with_type(shape.to, [&](auto out) {
        launch<RowOperation::kCopy, decltype(out), decltype(in)>(pairs, shape, stream);
      });
    }
  });
}

// Handles lse [heads, tokens] alone, with one thread per number instead of one warp.
void copy_lse_cuda(const Rows& to, const Rows& from, std::span<const RowSpan> spans, Stream stream) {
  for (const RowSpan& span : spans) {
    if (span.rows == 0) continue;
    LONGSPAN_CUDA(cudaMemcpy2DAsync(
        to.lse + span.to, static_cast<size_t>(to.lse_stride) * sizeof(float), from.lse + span.from,
        static_cast<size_t>(from.lse_stride) * sizeof(float), static_cast<size_t>(span.rows) * sizeof(float),
        static_cast<size_t>(to.tensor.heads), cudaMemcpyDeviceToDevice, cuda::raw(stream)));
  }
}

}  // namespace

void apply_cuda(RowOperation operation, const Rows& to, const Rows& from, std::span<const RowSpan> spans,
                Stream stream) {
  if (operation == RowOperation::kCopy && to.tensor.head_dim == 0) {
    if (to.lse != nullptr) copy_lse_cuda(to, from, spans, stream);
    return;
  }
  Spans packed;
  for (const RowSpan& span : spans) {
    if (span.rows == 0) continue;
    packed.begin[packed.count] = packed.rows;
    packed.to[packed.count] = static_cast<int>(span.to);
    packed.from[packed.count] = static_cast<int>(span.from);
    packed.rows += static_cast<int>(span.rows);
    if (++packed.count < kSpans) continue;
    launch(operation, to, from, packed, stream);
    packed = {};
  }
  if (packed.count > 0) launch(operation, to, from, packed, stream);
}

void apply_pairs_cuda(RowOperation operation, std::span<const RowPair> pairs, Stream stream) {
  std::vector<bool> done(pairs.size());
  for (size_t first = 0; first < pairs.size(); ++first) {
    if (done[first]) continue;
    const Shape shape = shape_of(pairs[first]);
    LONGSPAN_CHECK(operation != RowOperation::kAdd || shape.to == DType::kF32, "sums are f32, not {}",
                   name_of(shape.to));
    Pairs together;
    for (size_t i = first; i < pairs.size(); ++i) {
      if (done[i] || shape_of(pairs[i]) != shape) continue;
      done[i] = true;
      together.begin[together.count] = together.rows;
      together.to[together.count] = pairs[i].to.data;
      together.from[together.count] = pairs[i].from.data;
      together.rows += pairs[i].to.tokens;
      if (++together.count < kPairs) continue;
      launch(operation, together, shape, stream);
      together = {};
    }
    if (together.count > 0) launch(operation, together, shape, stream);
  }
}

}  // namespace longspan
