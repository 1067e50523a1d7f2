// Access to single elements of a host tensor whose dtype is known only at run time. For checks, not for
// kernels.
#pragma once

#include <type_traits>
#include <utility>

#include "base/dtype.h"
#include "base/error.h"
#include "longspan/base.h"

namespace longspan {

// Calls function(T{}) with the element type T of the dtype.
template <class Function>
decltype(auto) with_element_type(DType dtype, Function&& function) {
  switch (dtype) {
    case DType::kF32:
      return function(float{});
    case DType::kBF16:
      return function(bf16{});
    case DType::kF16:
      return function(f16{});
    case DType::kF64:
      return function(double{});
  }
  throw Error(ErrorKind::kInternal, fmt::format("dtype {} is unknown", static_cast<int>(dtype)), __FILE__,
              __LINE__, "dtype");
}

template <class T>
double to_double(T x) {
  if constexpr (std::is_floating_point_v<T>) {
    return x;
  } else {
    return to_float(x);
  }
}

template <class T>
T from_double(double x) {
  if constexpr (std::is_same_v<T, bf16>) {
    return to_bf16(static_cast<float>(x));
  } else if constexpr (std::is_same_v<T, f16>) {
    return to_f16(static_cast<float>(x));
  } else {
    return static_cast<T>(x);
  }
}

inline double get_element(const TensorView& tensor, int64_t token, int64_t head, int64_t d) {
  return with_element_type(tensor.dtype,
                           [&](auto type) { return to_double(tensor.row<decltype(type)>(token, head)[d]); });
}

// A row of head_dim elements, as doubles.
inline void load_row(const TensorView& tensor, int64_t token, int64_t head, double* out) {
  with_element_type(tensor.dtype, [&](auto type) {
    const auto* row = tensor.row<decltype(type)>(token, head);
    for (int64_t d = 0; d < tensor.head_dim; ++d) out[d] = to_double(row[d]);
  });
}

inline void set_element(const TensorView& tensor, int64_t token, int64_t head, int64_t d, double x) {
  with_element_type(tensor.dtype, [&](auto type) {
    using T = decltype(type);
    tensor.row<T>(token, head)[d] = from_double<T>(x);
  });
}

// x rounded to the dtype.
inline double rounded_to(DType dtype, double x) {
  return with_element_type(dtype, [&](auto type) { return to_double(from_double<decltype(type)>(x)); });
}

}  // namespace longspan
