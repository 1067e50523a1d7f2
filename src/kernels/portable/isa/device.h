// Words that let the same kernel source compile for a GPU and, in tests, for the emulation on a CPU. Kernels
// take the primitives that they are written over as a template parameter `Isa`: isa/ptx.cuh for GPUs,
// tests/unit/kernels/portable/emulated_isa.h for CPUs. Addresses of shared memory have 32 bits, as in PTX.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define LONGSPAN_DEVICE __device__ __forceinline__
#else
#define LONGSPAN_DEVICE inline
#endif

namespace longspan::portable {

// 16 bytes that are loaded and stored at once.
struct alignas(16) Vector {
  uint32_t word[4];
};

// The element types of the tensor cores' operands.
struct Bf16 {
  static constexpr bool kIsBf16 = true;
};
struct F16 {
  static constexpr bool kIsBf16 = false;
};

}  // namespace longspan::portable
