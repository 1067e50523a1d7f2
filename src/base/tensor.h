// Views of tensors that somebody else owns.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace longspan {

// [tokens, heads, head_dim], contiguous in head_dim; strides in elements. Does not own its memory.
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t tokens = 0, heads = 0, head_dim = 0;
  int64_t token_stride = 0, head_stride = 0;

  // A dense tensor in the standard layout: token-major, then head, then head_dim.
  static TensorView contiguous(void* data, DType dtype, int64_t tokens, int64_t heads, int64_t head_dim) {
    return {data, dtype, tokens, heads, head_dim, heads * head_dim, head_dim};
  }

  int64_t elements() const { return tokens * heads * head_dim; }
  size_t bytes() const { return static_cast<size_t>(elements()) * size_of(dtype); }

  // The first element of a row of head_dim elements. constexpr so that kernels may call it.
  template <class T>
  constexpr T* row(int64_t token, int64_t head) const {
    return static_cast<T*>(data) + token * token_stride + head * head_stride;
  }

  // The same, whatever the type.
  void* row_address(int64_t token, int64_t head) const {
    return static_cast<char*>(data) +
           (token * token_stride + head * head_stride) * static_cast<int64_t>(size_of(dtype));
  }

  TensorView head(int64_t h) const {  // [tokens, 1, head_dim]
    TensorView view = *this;
    view.data = static_cast<char*>(data) + static_cast<size_t>(h * head_stride) * size_of(dtype);
    view.heads = 1;
    return view;
  }
};

}  // namespace longspan
