// The primitives of the portable kernels as PTX of compute capability 8.0, one wrapper for each instruction.
// What each does is written down once more, from the PTX ISA, in the emulation of the tests.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/portable/isa/device.h"

namespace longspan::portable {

struct PtxIsa {
  static LONGSPAN_DEVICE int thread() { return static_cast<int>(threadIdx.x); }
  static LONGSPAN_DEVICE int block() { return static_cast<int>(blockIdx.x); }

  // The same value, of which the compiler knows nothing: what is computed from it is not kept in registers
  // beyond a loop's iteration.
  static LONGSPAN_DEVICE int opaque(int x) {
    asm volatile("" : "+r"(x));
    return x;
  }

  // ---- barriers and shuffles: all threads of the block or of the warp -----------------------------------
  static LONGSPAN_DEVICE void sync() { __syncthreads(); }
  static LONGSPAN_DEVICE void sync_warp() { __syncwarp(); }
  static LONGSPAN_DEVICE float shfl_xor(float x, int lanes) { return __shfl_xor_sync(0xffffffff, x, lanes); }
  static LONGSPAN_DEVICE bool any(bool x) { return __any_sync(0xffffffff, x) != 0; }

  // ---- shared memory ------------------------------------------------------------------------------------
  static LONGSPAN_DEVICE uint32_t shared_memory() {
    extern __shared__ __align__(128) unsigned char longspan_portable_shared[];
    return static_cast<uint32_t>(__cvta_generic_to_shared(longspan_portable_shared));
  }

  // Copies 16 bytes to shared memory in this thread's current group or, if not `there`, writes zeros.
  static LONGSPAN_DEVICE void cp_async(uint32_t to, const void* from, bool there) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to),
                 "l"(__cvta_generic_to_global(from)), "r"(there ? 16 : 0)
                 : "memory");
  }
  static LONGSPAN_DEVICE void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
  // Waits until all but the kLeft latest groups of this thread are there. Other threads see them after a
  // barrier.
  template <int kLeft>
  static LONGSPAN_DEVICE void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
  }

  static LONGSPAN_DEVICE void ldmatrix_x4(uint32_t (&r)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  }
  static LONGSPAN_DEVICE void ldmatrix_x4_trans(uint32_t (&r)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  }
  static LONGSPAN_DEVICE void st_shared(uint32_t to, uint32_t x) {
    asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(x) : "memory");
  }
  static LONGSPAN_DEVICE void ld_shared(float& a, float& b, uint32_t from) {
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(a), "=f"(b) : "r"(from) : "memory");
  }
  static LONGSPAN_DEVICE uint32_t ld_shared(uint32_t from) {
    uint32_t x;
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(from) : "memory");
    return x;
  }
  static LONGSPAN_DEVICE Vector ld_shared_vector(uint32_t from) {
    Vector x;
    asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x.word[0]), "=r"(x.word[1]), "=r"(x.word[2]), "=r"(x.word[3])
                 : "r"(from)
                 : "memory");
    return x;
  }

  // ---- tensor cores -------------------------------------------------------------------------------------
  // c += a b for a of 16 x 16 and b of 16 x 8.
  template <class Element>
  static LONGSPAN_DEVICE void mma(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    if constexpr (Element::kIsBf16) {
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    } else {
      asm volatile(
          "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
          "{%0, %1, %2, %3};"
          : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
  }

  // ---- arithmetic ---------------------------------------------------------------------------------------
  template <class Element>
  static LONGSPAN_DEVICE uint32_t pack(float low, float high) {  // two elements
    uint32_t packed;
    if constexpr (Element::kIsBf16)
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    else
      asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
  }
  template <class Element>
  static LONGSPAN_DEVICE void unpack(uint32_t packed, float& low, float& high) {
    if constexpr (Element::kIsBf16) {
      low = __uint_as_float(packed << 16);
      high = __uint_as_float(packed & 0xffff0000U);
    } else {
      low = __half2float(__ushort_as_half(static_cast<unsigned short>(packed)));
      high = __half2float(__ushort_as_half(static_cast<unsigned short>(packed >> 16)));
    }
  }
  static LONGSPAN_DEVICE float as_float(uint32_t x) { return __uint_as_float(x); }
  static LONGSPAN_DEVICE uint32_t as_bits(float x) { return __float_as_uint(x); }
  static LONGSPAN_DEVICE float exp2(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  }
  static LONGSPAN_DEVICE float log2(float x) { return log2f(x); }
  static LONGSPAN_DEVICE float fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }

  // ---- global memory that blocks share -----------------------------------------------------------------
  // Sums of a warp's accumulators c[4] in 512 bytes. From 9.0 on, a lane adds its four at once; before, 32
  // lanes add to 128 contiguous bytes.
  static LONGSPAN_DEVICE void add_four(float* sums, int lane, const float (&c)[4]) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(sums + 4 * lane)),
        "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3])
        : "memory");
#else
#pragma unroll
    for (int i = 0; i < 4; ++i)
      asm volatile("red.global.add.f32 [%0], %1;" ::"l"(__cvta_generic_to_global(sums + 32 * i + lane)),
                   "f"(c[i])
                   : "memory");
#endif
  }
  // Those of lanes `lane` to `lane` + 3, a multiple of 4: c[lane][i].
  static LONGSPAN_DEVICE void sums_of(const float* sums, int lane, float (&c)[4][4]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#if __CUDA_ARCH__ >= 900
      const Vector four = *reinterpret_cast<const Vector*>(sums + 4 * (lane + i));
#pragma unroll
      for (int j = 0; j < 4; ++j) c[i][j] = as_float(four.word[j]);
#else
      const Vector four = *reinterpret_cast<const Vector*>(sums + 32 * i + lane);
#pragma unroll
      for (int j = 0; j < 4; ++j) c[j][i] = as_float(four.word[j]);
#endif
    }
  }
  // A lane's own, which other blocks have added to.
  static LONGSPAN_DEVICE void sums_of_lane(const float* sums, int lane, float (&c)[4]) {
#if __CUDA_ARCH__ >= 900
    const float4 four = __ldcg(reinterpret_cast<const float4*>(sums + 4 * lane));
    c[0] = four.x, c[1] = four.y, c[2] = four.z, c[3] = four.w;
#else
#pragma unroll
    for (int i = 0; i < 4; ++i) c[i] = __ldcg(sums + 32 * i + lane);
#endif
  }
  static LONGSPAN_DEVICE int take(int32_t* counter) {
    return atomicAdd(counter, 1);
  }
  // Waits for a turn: what other blocks wrote before they released it is seen from here on.
  static LONGSPAN_DEVICE void acquire(const int32_t* turn, int32_t value) {
    int32_t now;
    do {
      asm volatile("ld.acquire.gpu.global.s32 %0, [%1];"
                   : "=r"(now)
                   : "l"(__cvta_generic_to_global(turn))
                   : "memory");
    } while (now != value);
  }
  // To be called by one thread, behind a fence() of each thread that wrote and a barrier.
  static LONGSPAN_DEVICE void release(int32_t* turn, int32_t value) {
    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(__cvta_generic_to_global(turn)), "r"(value)
                 : "memory");
  }
  static LONGSPAN_DEVICE void fence() {
    __threadfence();
  }
};

}  // namespace longspan::portable
