// PTX instructions of the backward kernel alone, one wrapper each, named after the instruction.
#pragma once

#include <cstdint>

#include "kernels/sm90/isa/ptx.cuh"

namespace longspan::sm90 {

// Expects bytes in this phase, without an arrival.
__device__ __forceinline__ void mbarrier_expect_tx(Mbarrier& barrier, uint32_t bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)),
               "r"(bytes)
               : "memory");
}

// Ends the mbarrier: its memory may be reused.
__device__ __forceinline__ void mbarrier_inval(Mbarrier& barrier) {
  asm volatile("mbarrier.inval.shared.b64 [%0];" ::"r"(shared_address(&barrier)) : "memory");
}

// Copies contiguous global memory to shared memory and completes the bytes on the mbarrier. Addresses and
// size are multiples of 16.
__device__ __forceinline__ void cp_async_bulk_load(uint32_t destination, const void* source, uint32_t bytes,
                                                   Mbarrier& barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          destination),
      "l"(source), "r"(bytes), "r"(shared_address(&barrier))
      : "memory");
}

// Loads a box to L2 alone.
__device__ __forceinline__ void cp_async_bulk_prefetch_tensor(const CUtensorMap& map, int c0, int c1, int c2,
                                                              int c3) {
  asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global.tile [%0, {%1, %2, %3, %4}];" ::"l"(&map), "r"(c0),
               "r"(c1), "r"(c2), "r"(c3)
               : "memory");
}

// Adds floats in shared memory to global memory, in the thread's current bulk group.
__device__ __forceinline__ void cp_reduce_async_bulk_add(float* destination, uint32_t source,
                                                         uint32_t bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(destination),
      "r"(source), "r"(bytes)
      : "memory");
}

// Copies contiguous shared memory to global memory, in the thread's current bulk group.
__device__ __forceinline__ void cp_async_bulk_store(float* destination, uint32_t source, uint32_t bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(destination), "r"(source),
               "r"(bytes)
               : "memory");
}

// Copies shared memory to the same address in CTA `rank` of the cluster, and completes the bytes on the
// mbarrier there.
__device__ __forceinline__ void cp_async_bulk_copy_to(uint32_t address, uint32_t bytes, Mbarrier& barrier,
                                                      int rank) {
  asm volatile(
      "{ .reg .b32 there, full; mapa.shared::cluster.u32 there, %0, %3; mapa.shared::cluster.u32 full, %2, "
      "%3;"
      " cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [there], [%0], %1, [full]; "
      "}" ::"r"(address),
      "r"(bytes), "r"(shared_address(&barrier)), "r"(rank)
      : "memory");
}

// Orders TMA (the async proxy) and this thread's ordinary accesses, for all memories.
__device__ __forceinline__ void fence_proxy_async_all() {
  asm volatile("fence.proxy.async;" ::: "memory");
}

// Stores of several words, which the compiler would split. The address is a multiple of their size.
__device__ __forceinline__ void st_global_v2(void* address, uint32_t x, uint32_t y) {
  asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(address), "r"(x), "r"(y) : "memory");
}
__device__ __forceinline__ void st_global_v4(void* address, uint32_t x, uint32_t y, uint32_t z, uint32_t w) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(address), "r"(x), "r"(y), "r"(z), "r"(w)
               : "memory");
}

__device__ __forceinline__ int32_t ld_acquire(const int32_t* address) {
  int32_t value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

__device__ __forceinline__ void st_release(int32_t* address, int32_t value) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

__device__ __forceinline__ void red_add_release(int32_t* address, int32_t value) {
  asm volatile("red.release.gpu.global.add.s32 [%0], %1;" ::"l"(address), "r"(value) : "memory");
}

__device__ __forceinline__ int32_t ld_relaxed(const int32_t* address) {
  int32_t value;
  asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(address) : "memory");
  return value;
}

// Adds four floats to global memory; the address is a multiple of 16.
__device__ __forceinline__ void red_add_v4(float* destination, float x, float y, float z, float w) {
  asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(destination), "f"(x), "f"(y),
               "f"(z), "f"(w)
               : "memory");
}

// Stores the transposes of four 8 x 8 matrices.
__device__ __forceinline__ void stmatrix_x4_trans(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2,
                                                  uint32_t r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(r0), "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}

__device__ __forceinline__ void st_shared_v4(uint32_t address, float x, float y, float z, float w) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(x), "f"(y), "f"(z), "f"(w)
               : "memory");
}

}  // namespace longspan::sm90
