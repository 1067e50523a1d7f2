// wgmma with both operands in shared memory and either of them stored along m or n: what the backward kernel
// needs beyond wgmma.cuh, whose conventions hold here too.
#pragma once

#include <cstdint>

#include "kernels/sm90/isa/wgmma.cuh"

namespace longspan::sm90 {

// The same as pin_registers of floats, for operands in registers: they may be read until their product is
// over.
template <int kSteps>
__device__ __forceinline__ void pin_registers(uint32_t (&a)[kSteps][4]) {
#pragma unroll
  for (int i = 0; i < kSteps; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) asm volatile("" : "+r"(a[i][j])::"memory");
}

// d[64 x N] = a[64 x 16] b[16 x N], or += with `add`. kMMajor: the rows of a in shared memory run along k,
// its 128-byte rows along m. kNMajor: likewise for b.
template <class Element, int kColumns>
struct SharedWgmma;

// clang-format off
#define LONGSPAN_WGMMA_D32 \
  "{" \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15" \
  "}"
#define LONGSPAN_WGMMA_SET32 \
  "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]), "=f"(d[4]), "=f"(d[5]), "=f"(d[6]), "=f"(d[7]), \
  "=f"(d[8]), "=f"(d[9]), "=f"(d[10]), "=f"(d[11]), "=f"(d[12]), "=f"(d[13]), "=f"(d[14]), "=f"(d[15])
#define LONGSPAN_WGMMA_ADD32 \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
  "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15])

template <>
struct SharedWgmma<__nv_bfloat16, 32> {
  template <int kMMajor, int kNMajor>
  static __device__ __forceinline__ void set(float (&d)[16], uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 " LONGSPAN_WGMMA_D32
        ", %16, %17, 0, 1, 1, %18, %19;"
        : LONGSPAN_WGMMA_SET32
        : "l"(a), "l"(b), "n"(kMMajor), "n"(kNMajor));
  }
  template <int kMMajor, int kNMajor>
  static __device__ __forceinline__ void add(float (&d)[16], uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.bf16.bf16 " LONGSPAN_WGMMA_D32
        ", %16, %17, 1, 1, 1, %18, %19;"
        : LONGSPAN_WGMMA_ADD32
        : "l"(a), "l"(b), "n"(kMMajor), "n"(kNMajor));
  }
};

template <>
struct SharedWgmma<__half, 32> {
  template <int kMMajor, int kNMajor>
  static __device__ __forceinline__ void set(float (&d)[16], uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 " LONGSPAN_WGMMA_D32
        ", %16, %17, 0, 1, 1, %18, %19;"
        : LONGSPAN_WGMMA_SET32
        : "l"(a), "l"(b), "n"(kMMajor), "n"(kNMajor));
  }
  template <int kMMajor, int kNMajor>
  static __device__ __forceinline__ void add(float (&d)[16], uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n32k16.f32.f16.f16 " LONGSPAN_WGMMA_D32
        ", %16, %17, 1, 1, 1, %18, %19;"
        : LONGSPAN_WGMMA_ADD32
        : "l"(a), "l"(b), "n"(kMMajor), "n"(kNMajor));
  }
};

#undef LONGSPAN_WGMMA_D32
#undef LONGSPAN_WGMMA_SET32
#undef LONGSPAN_WGMMA_ADD32

#define LONGSPAN_WGMMA_D64 \
  "{" \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31" \
  "}"
#define LONGSPAN_WGMMA_SET64 \
  "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]), "=f"(d[4]), "=f"(d[5]), "=f"(d[6]), "=f"(d[7]), \
  "=f"(d[8]), "=f"(d[9]), "=f"(d[10]), "=f"(d[11]), "=f"(d[12]), "=f"(d[13]), "=f"(d[14]), "=f"(d[15]), \
  "=f"(d[16]), "=f"(d[17]), "=f"(d[18]), "=f"(d[19]), "=f"(d[20]), "=f"(d[21]), "=f"(d[22]), "=f"(d[23]), \
  "=f"(d[24]), "=f"(d[25]), "=f"(d[26]), "=f"(d[27]), "=f"(d[28]), "=f"(d[29]), "=f"(d[30]), "=f"(d[31])
#define LONGSPAN_WGMMA_ADD64 \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
  "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), \
  "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), \
  "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])

template <>
struct SharedWgmma<__nv_bfloat16, 64> {
  template <int kMMajor, int kNMajor>
  static __device__ __forceinline__ void set(float (&d)[32], uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " LONGSPAN_WGMMA_D64
        ", %32, %33, 0, 1, 1, %34, %35;"
        : LONGSPAN_WGMMA_SET64
        : "l"(a), "l"(b), "n"(kMMajor), "n"(kNMajor));
  }
  template <int kMMajor, int kNMajor>
  static __device__ __forceinline__ void add(float (&d)[32], uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 " LONGSPAN_WGMMA_D64
        ", %32, %33, 1, 1, 1, %34, %35;"
        : LONGSPAN_WGMMA_ADD64
        : "l"(a), "l"(b), "n"(kMMajor), "n"(kNMajor));
  }
};

template <>
struct SharedWgmma<__half, 64> {
  template <int kMMajor, int kNMajor>
  static __device__ __forceinline__ void set(float (&d)[32], uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " LONGSPAN_WGMMA_D64
        ", %32, %33, 0, 1, 1, %34, %35;"
        : LONGSPAN_WGMMA_SET64
        : "l"(a), "l"(b), "n"(kMMajor), "n"(kNMajor));
  }
  template <int kMMajor, int kNMajor>
  static __device__ __forceinline__ void add(float (&d)[32], uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 " LONGSPAN_WGMMA_D64
        ", %32, %33, 1, 1, 1, %34, %35;"
        : LONGSPAN_WGMMA_ADD64
        : "l"(a), "l"(b), "n"(kMMajor), "n"(kNMajor));
  }
};

#undef LONGSPAN_WGMMA_D64
#undef LONGSPAN_WGMMA_SET64
#undef LONGSPAN_WGMMA_ADD64

#define LONGSPAN_WGMMA_D80 \
  "{" \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39" \
  "}"
#define LONGSPAN_WGMMA_SET80 \
  "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3]), "=f"(d[4]), "=f"(d[5]), "=f"(d[6]), "=f"(d[7]), \
  "=f"(d[8]), "=f"(d[9]), "=f"(d[10]), "=f"(d[11]), "=f"(d[12]), "=f"(d[13]), "=f"(d[14]), "=f"(d[15]), \
  "=f"(d[16]), "=f"(d[17]), "=f"(d[18]), "=f"(d[19]), "=f"(d[20]), "=f"(d[21]), "=f"(d[22]), "=f"(d[23]), \
  "=f"(d[24]), "=f"(d[25]), "=f"(d[26]), "=f"(d[27]), "=f"(d[28]), "=f"(d[29]), "=f"(d[30]), "=f"(d[31]), \
  "=f"(d[32]), "=f"(d[33]), "=f"(d[34]), "=f"(d[35]), "=f"(d[36]), "=f"(d[37]), "=f"(d[38]), "=f"(d[39])
#define LONGSPAN_WGMMA_ADD80 \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]), \
  "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]), "+f"(d[15]), \
  "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), \
  "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), \
  "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39])

template <>
struct SharedWgmma<__nv_bfloat16, 80> {
  template <int kMMajor, int kNMajor>
  static __device__ __forceinline__ void set(float (&d)[40], uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 " LONGSPAN_WGMMA_D80
        ", %40, %41, 0, 1, 1, %42, %43;"
        : LONGSPAN_WGMMA_SET80
        : "l"(a), "l"(b), "n"(kMMajor), "n"(kNMajor));
  }
  template <int kMMajor, int kNMajor>
  static __device__ __forceinline__ void add(float (&d)[40], uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n80k16.f32.bf16.bf16 " LONGSPAN_WGMMA_D80
        ", %40, %41, 1, 1, 1, %42, %43;"
        : LONGSPAN_WGMMA_ADD80
        : "l"(a), "l"(b), "n"(kMMajor), "n"(kNMajor));
  }
};

template <>
struct SharedWgmma<__half, 80> {
  template <int kMMajor, int kNMajor>
  static __device__ __forceinline__ void set(float (&d)[40], uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n80k16.f32.f16.f16 " LONGSPAN_WGMMA_D80
        ", %40, %41, 0, 1, 1, %42, %43;"
        : LONGSPAN_WGMMA_SET80
        : "l"(a), "l"(b), "n"(kMMajor), "n"(kNMajor));
  }
  template <int kMMajor, int kNMajor>
  static __device__ __forceinline__ void add(float (&d)[40], uint64_t a, uint64_t b) {
    asm volatile(
        "wgmma.mma_async.sync.aligned.m64n80k16.f32.f16.f16 " LONGSPAN_WGMMA_D80
        ", %40, %41, 1, 1, 1, %42, %43;"
        : LONGSPAN_WGMMA_ADD80
        : "l"(a), "l"(b), "n"(kMMajor), "n"(kNMajor));
  }
};

#undef LONGSPAN_WGMMA_D80
#undef LONGSPAN_WGMMA_SET80
#undef LONGSPAN_WGMMA_ADD80

// clang-format on

}  // namespace longspan::sm90
