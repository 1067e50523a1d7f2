// wgmma: the asynchronous matrix product of a warpgroup, d (+)= a b, in fp32 with 16-bit operands.
//
// b lies in shared memory, a in shared memory or registers, d in registers. Thread t of a warpgroup holds
// columns c = 8 i + 2 (t % 4) and c + 1 of two rows, r = 16 (t / 32) + t % 32 / 4 and r + 8:
//   d[4 i], d[4 i + 1]: row r        d[4 i + 2], d[4 i + 3]: row r + 8
#pragma once

#include <cstdint>

#include "kernels/sm90/isa/ptx.cuh"

namespace longspan::sm90 {

// Operands in shared memory have rows of 128 bytes (64 elements). Chunk c of 16 bytes in row r lies at chunk
// c ^ (r % 8), which is TMA's 128-byte swizzle. A wider tile is several such panels. Each panel begins at a
// multiple of 1,024 bytes.
inline constexpr uint32_t kPanelRowBytes = 128;
inline constexpr int kPanelColumns = 64;

namespace detail {
inline constexpr uint64_t kSwizzle128 = uint64_t{1} << 62;
__host__ __device__ constexpr uint64_t descriptor_field(uint32_t bytes) {
  return (bytes & 0x3FFFF) >> 4;
}
}  // namespace detail

// A tile whose rows run along m (of a) or n (of b), and whose 128-byte rows run along k. A step of 16 in k is
// 32 bytes.
__device__ __forceinline__ uint64_t descriptor_k_major(uint32_t address) {
  return detail::kSwizzle128 | (detail::descriptor_field(8 * kPanelRowBytes) << 32) |
         (detail::descriptor_field(16) << 16) | detail::descriptor_field(address);
}

// A tile b whose rows run along k and whose 128-byte rows run along n, in panels of `panel_bytes`. A step of
// 16 in k is 16 rows, or 2,048 bytes.
__device__ __forceinline__ uint64_t descriptor_n_major(uint32_t address, uint32_t panel_bytes) {
  return detail::kSwizzle128 | (detail::descriptor_field(8 * kPanelRowBytes) << 32) |
         (detail::descriptor_field(panel_bytes) << 16) | detail::descriptor_field(address);
}

// Moves a descriptor by a multiple of 16 bytes. The address stays within its field in the lower word, so a
// 32-bit addition suffices. A 64-bit one becomes a chain of carries in uniform registers before each wgmma.
__device__ __forceinline__ uint64_t advance(uint64_t descriptor, uint32_t bytes) {
  const auto low = static_cast<uint32_t>(descriptor) + (bytes >> 4);
  return (descriptor & 0xffffffff00000000) | low;
}

// Required before the first wgmma after writes to registers that it reads or adds to.
__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_commit_group() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

// Waits until at most kPending of the latest groups are in flight.
template <int kPending>
__device__ __forceinline__ void wgmma_wait_group() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Tells the compiler that asynchronous work may have changed these registers.
template <int kCount>
__device__ __forceinline__ void pin_registers(float (&d)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

// pin_registers for operands in registers, which may be read until their product is complete.
template <int kSteps>
__device__ __forceinline__ void pin_registers(uint32_t (&a)[kSteps][4]) {
#pragma unroll
  for (int i = 0; i < kSteps; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) asm volatile("" : "+r"(a[i][j])::"memory");
}

// d[64 x N] (+)= a[64 x 16] b[16 x N]; with `accumulate` 0, d = a b.
//  ss: a and b in shared memory, their 128-byte rows along k ("k major").
//  rs: a in registers, laid out like the accumulators of two neighbouring steps; b in shared memory, its
//      128-byte rows along k or, with kNMajor, along n.
template <class Element, int kColumns>
struct Wgmma;

// Both operands in shared memory. set: d[64 x N] = a[64 x 16] b[16 x N]; add: d += a b. With kMMajor the
// 128-byte rows of a run along m and its rows along k. kNMajor is the same for b.
template <class Element, int kColumns>
struct SharedWgmma;

// clang-format off
// A thread's N / 2 accumulators as the instruction names them. Each list extends the one before it.
#define LONGSPAN_REGISTERS_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define LONGSPAN_REGISTERS_24 LONGSPAN_REGISTERS_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define LONGSPAN_REGISTERS_32 LONGSPAN_REGISTERS_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define LONGSPAN_REGISTERS_40 LONGSPAN_REGISTERS_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define LONGSPAN_REGISTERS_64 LONGSPAN_REGISTERS_40 \
  ", %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55" \
  ", %56, %57, %58, %59, %60, %61, %62, %63"
#define LONGSPAN_REGISTERS_80 LONGSPAN_REGISTERS_64 \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define LONGSPAN_REGISTERS_96 LONGSPAN_REGISTERS_80 \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define LONGSPAN_REGISTERS_128 LONGSPAN_REGISTERS_96 \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111" \
  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

// The same as operands of an asm statement, with the constraint "+f" if it adds to them, or "=f".
#define LONGSPAN_OPERANDS_16(F) \
  F(d[0]), F(d[1]), F(d[2]), F(d[3]), F(d[4]), F(d[5]), F(d[6]), F(d[7]), \
  F(d[8]), F(d[9]), F(d[10]), F(d[11]), F(d[12]), F(d[13]), F(d[14]), F(d[15])
#define LONGSPAN_OPERANDS_24(F) LONGSPAN_OPERANDS_16(F), \
  F(d[16]), F(d[17]), F(d[18]), F(d[19]), F(d[20]), F(d[21]), F(d[22]), F(d[23])
#define LONGSPAN_OPERANDS_32(F) LONGSPAN_OPERANDS_24(F), \
  F(d[24]), F(d[25]), F(d[26]), F(d[27]), F(d[28]), F(d[29]), F(d[30]), F(d[31])
#define LONGSPAN_OPERANDS_40(F) LONGSPAN_OPERANDS_32(F), \
  F(d[32]), F(d[33]), F(d[34]), F(d[35]), F(d[36]), F(d[37]), F(d[38]), F(d[39])
#define LONGSPAN_OPERANDS_64(F) LONGSPAN_OPERANDS_40(F), \
  F(d[40]), F(d[41]), F(d[42]), F(d[43]), F(d[44]), F(d[45]), F(d[46]), F(d[47]), \
  F(d[48]), F(d[49]), F(d[50]), F(d[51]), F(d[52]), F(d[53]), F(d[54]), F(d[55]), \
  F(d[56]), F(d[57]), F(d[58]), F(d[59]), F(d[60]), F(d[61]), F(d[62]), F(d[63])
#define LONGSPAN_OPERANDS_80(F) LONGSPAN_OPERANDS_64(F), \
  F(d[64]), F(d[65]), F(d[66]), F(d[67]), F(d[68]), F(d[69]), F(d[70]), F(d[71]), \
  F(d[72]), F(d[73]), F(d[74]), F(d[75]), F(d[76]), F(d[77]), F(d[78]), F(d[79])
#define LONGSPAN_OPERANDS_96(F) LONGSPAN_OPERANDS_80(F), \
  F(d[80]), F(d[81]), F(d[82]), F(d[83]), F(d[84]), F(d[85]), F(d[86]), F(d[87]), \
  F(d[88]), F(d[89]), F(d[90]), F(d[91]), F(d[92]), F(d[93]), F(d[94]), F(d[95])
#define LONGSPAN_OPERANDS_128(F) LONGSPAN_OPERANDS_96(F), \
  F(d[96]), F(d[97]), F(d[98]), F(d[99]), F(d[100]), F(d[101]), F(d[102]), F(d[103]), \
  F(d[104]), F(d[105]), F(d[106]), F(d[107]), F(d[108]), F(d[109]), F(d[110]), F(d[111]), \
  F(d[112]), F(d[113]), F(d[114]), F(d[115]), F(d[116]), F(d[117]), F(d[118]), F(d[119]), \
  F(d[120]), F(d[121]), F(d[122]), F(d[123]), F(d[124]), F(d[125]), F(d[126]), F(d[127])

// One instruction of N columns and R = N / 2 accumulators. O0 to O6 number the operands after these: R, R + 1, ...
#define LONGSPAN_INSTRUCTION(TYPE, N, R) \
  "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" LONGSPAN_REGISTERS_##R "}"
#define LONGSPAN_WGMMA(ELEMENT, TYPE, N, R, O0, O1, O2, O3, O4, O5, O6) \
  template <> \
  struct Wgmma<ELEMENT, N> { \
    static __device__ __forceinline__ void ss(float (&d)[R], uint64_t a, uint64_t b, int accumulate) { \
      asm volatile( \
          "{ .reg .pred p; setp.ne.b32 p, %" #O2 ", 0;" \
          " " LONGSPAN_INSTRUCTION(TYPE, N, R) ", %" #O0 ", %" #O1 ", p, 1, 1, 0, 0; }" \
          : LONGSPAN_OPERANDS_##R("+f") \
          : "l"(a), "l"(b), "r"(accumulate)); \
    } \
    template <int kNMajor> \
    static __device__ __forceinline__ void rs(float (&d)[R], const uint32_t (&a)[4], uint64_t b, \
                                              int accumulate) { \
      asm volatile( \
          "{ .reg .pred p; setp.ne.b32 p, %" #O5 ", 0;" \
          " " LONGSPAN_INSTRUCTION(TYPE, N, R) \
          ", {%" #O0 ", %" #O1 ", %" #O2 ", %" #O3 "}, %" #O4 ", p, 1, 1, %" #O6 "; }" \
          : LONGSPAN_OPERANDS_##R("+f") \
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate), "n"(kNMajor)); \
    } \
  };
#define LONGSPAN_SHARED_WGMMA_INTO(NAME, ADD, CONSTRAINT, TYPE, N, R, O0, O1, O2, O3) \
  template <int kMMajor, int kNMajor> \
  static __device__ __forceinline__ void NAME(float (&d)[R], uint64_t a, uint64_t b) { \
    asm volatile( \
        LONGSPAN_INSTRUCTION(TYPE, N, R) ", %" #O0 ", %" #O1 ", " #ADD ", 1, 1, %" #O2 ", %" #O3 ";" \
        : LONGSPAN_OPERANDS_##R(CONSTRAINT) \
        : "l"(a), "l"(b), "n"(kMMajor), "n"(kNMajor)); \
  }
#define LONGSPAN_SHARED_WGMMA(ELEMENT, TYPE, N, R, ...) \
  template <> \
  struct SharedWgmma<ELEMENT, N> { \
    LONGSPAN_SHARED_WGMMA_INTO(set, 0, "=f", TYPE, N, R, __VA_ARGS__) \
    LONGSPAN_SHARED_WGMMA_INTO(add, 1, "+f", TYPE, N, R, __VA_ARGS__) \
  };
#define LONGSPAN_TYPES(WGMMA, ...) \
  WGMMA(__nv_bfloat16, "bf16", __VA_ARGS__) \
  WGMMA(__half, "f16", __VA_ARGS__)

LONGSPAN_TYPES(LONGSPAN_WGMMA, 48, 24, 24, 25, 26, 27, 28, 29, 30)
LONGSPAN_TYPES(LONGSPAN_WGMMA, 64, 32, 32, 33, 34, 35, 36, 37, 38)
LONGSPAN_TYPES(LONGSPAN_WGMMA, 80, 40, 40, 41, 42, 43, 44, 45, 46)
LONGSPAN_TYPES(LONGSPAN_WGMMA, 128, 64, 64, 65, 66, 67, 68, 69, 70)
LONGSPAN_TYPES(LONGSPAN_WGMMA, 192, 96, 96, 97, 98, 99, 100, 101, 102)
LONGSPAN_TYPES(LONGSPAN_WGMMA, 256, 128, 128, 129, 130, 131, 132, 133, 134)
LONGSPAN_TYPES(LONGSPAN_SHARED_WGMMA, 32, 16, 16, 17, 18, 19)
LONGSPAN_TYPES(LONGSPAN_SHARED_WGMMA, 64, 32, 32, 33, 34, 35)
LONGSPAN_TYPES(LONGSPAN_SHARED_WGMMA, 80, 40, 40, 41, 42, 43)
LONGSPAN_TYPES(LONGSPAN_SHARED_WGMMA, 128, 64, 64, 65, 66, 67)

#undef LONGSPAN_TYPES
#undef LONGSPAN_SHARED_WGMMA
#undef LONGSPAN_SHARED_WGMMA_INTO
#undef LONGSPAN_WGMMA
#undef LONGSPAN_INSTRUCTION
#undef LONGSPAN_OPERANDS_128
#undef LONGSPAN_OPERANDS_96
#undef LONGSPAN_OPERANDS_80
#undef LONGSPAN_OPERANDS_64
#undef LONGSPAN_OPERANDS_40
#undef LONGSPAN_OPERANDS_32
#undef LONGSPAN_OPERANDS_24
#undef LONGSPAN_OPERANDS_16
#undef LONGSPAN_REGISTERS_128
#undef LONGSPAN_REGISTERS_96
#undef LONGSPAN_REGISTERS_80
#undef LONGSPAN_REGISTERS_64
#undef LONGSPAN_REGISTERS_40
#undef LONGSPAN_REGISTERS_32
#undef LONGSPAN_REGISTERS_24
#undef LONGSPAN_REGISTERS_16
// clang-format on

}  // namespace longspan::sm90
