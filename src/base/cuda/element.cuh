// Tensor elements in CUDA code: conversion to and from f32 or f64, and dispatch on a dtype known only at run
// time.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "base/dtype.h"
#include "base/error.h"

namespace longspan::cuda {

__device__ inline float to_f32(float x) {
  return x;
}
__device__ inline float to_f32(__nv_bfloat16 x) {
  return __bfloat162float(x);
}
__device__ inline float to_f32(__half x) {
  return __half2float(x);
}

template <class T>
__device__ double to_f64(T x) {
  return to_f32(x);
}
__device__ inline double to_f64(double x) {
  return x;
}

// Rounds to nearest even.
template <class T>
__device__ T from_f32(float x);
template <>
__device__ inline float from_f32<float>(float x) {
  return x;
}
template <>
__device__ inline double from_f32<double>(float x) {
  return x;
}
template <>
__device__ inline __nv_bfloat16 from_f32<__nv_bfloat16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ inline __half from_f32<__half>(float x) {
  return __float2half_rn(x);
}

// Calls visit with a value of the dtype's type, f32 at most; `user` names the caller in the error for f64.
template <class Visit>
void with_element_type(DType dtype, const char* user, const Visit& visit) {
  switch (dtype) {
    case DType::kF32:
      return visit(float{});
    case DType::kBF16:
      return visit(__nv_bfloat16{});
    case DType::kF16:
      return visit(__half{});
    case DType::kF64:
      break;
  }
  LONGSPAN_CHECK(false, "{}: no {}", user, name_of(dtype));
}

// The same, including f64.
template <class Visit>
void with_any_element_type(DType dtype, const Visit& visit) {
  if (dtype == DType::kF64) return visit(double{});
  with_element_type(dtype, "elements", visit);
}

}  // namespace longspan::cuda
