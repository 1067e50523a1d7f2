// PTX instructions of the Hopper kernels, one wrapper each, named after the instruction: mbarriers, tensor
// copies (TMA), register reallocation, fences and conversions. Shared-memory addresses have 32 bits, as in
// PTX. wgmma has its own header.
#pragma once

#include <cstdint>

#include <cuda.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace longspan::sm90 {

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// ---- mbarriers -------------------------------------------------------------------------------------------

using Mbarrier = uint64_t;  // in shared memory

__device__ __forceinline__ void mbarrier_init(Mbarrier& barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(arrivals));
}

// Makes initialized mbarriers visible to TMA.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(Mbarrier& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
}

__device__ __forceinline__ void mbarrier_arrive_expect_tx(Mbarrier& barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)),
               "r"(bytes)
               : "memory");
}

__device__ __forceinline__ bool mbarrier_try_wait(Mbarrier& barrier, uint32_t parity) {
  uint32_t done;
  asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(done)
               : "r"(shared_address(&barrier)), "r"(parity)
               : "memory");
  return done != 0;
}

// Like mbarrier_try_wait, but returns at once; try_wait may suspend the thread for a while.
__device__ __forceinline__ bool mbarrier_test_wait(Mbarrier& barrier, uint32_t parity) {
  uint32_t done;
  asm volatile(
      "{ .reg .pred p; mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
      : "=r"(done)
      : "r"(shared_address(&barrier)), "r"(parity)
      : "memory");
  return done != 0;
}

// Waits until the phase of this parity has completed. A build with LONGSPAN_SM90_TRAP_AFTER=n stops the
// kernel with an error after n polls, so a deadlock costs a second and not the machine.
__device__ __forceinline__ void mbarrier_wait(Mbarrier& barrier, uint32_t parity) {
#ifdef LONGSPAN_SM90_TRAP_AFTER
  for (long long polls = 0; !mbarrier_try_wait(barrier, parity); ++polls)
    if (polls > LONGSPAN_SM90_TRAP_AFTER) __trap();
#else
  while (!mbarrier_try_wait(barrier, parity)) {
  }
#endif
}

// ---- named barriers --------------------------------------------------------------------------------------

// Waits until `kThreads` threads of the CTA, whole warps, have arrived at this barrier, which is then ready
// for its next use.
template <int kThreads>
__device__ __forceinline__ void bar_sync(int barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(kThreads) : "memory");
}

// Arrives without waiting; others wait by bar_sync.
template <int kThreads>
__device__ __forceinline__ void bar_arrive(int barrier) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(kThreads) : "memory");
}

// ---- pairs of CTAs: clusters of two ----------------------------------------------------------------------

__device__ __forceinline__ int cluster_ctarank() {
  int rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// All threads of all CTAs of the cluster, whole warps.
__device__ __forceinline__ void cluster_sync() {
  __syncwarp();
  asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// Arrives at the mbarrier at the same address in CTA `rank` of the cluster. It orders nothing beyond the CTA:
// with release.cluster ptxas puts a fence of all GPU memory before it, and what is released here is shared
// memory that wgmma has read.
__device__ __forceinline__ void mbarrier_arrive_at(Mbarrier& barrier, int rank) {
  asm volatile(
      "{ .reg .b32 there; mapa.shared::cluster.u32 there, %0, %1;"
      " mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(shared_address(&barrier)),
      "r"(rank)
      : "memory");
}

// Stores a word at the same address in CTA `rank` of the cluster, and completes its bytes on the mbarrier
// there.
__device__ __forceinline__ void store_at(int32_t& word, int32_t value, Mbarrier& barrier, int rank) {
  asm volatile(
      "{ .reg .b32 there, full; mapa.shared::cluster.u32 there, %0, %3; mapa.shared::cluster.u32 full, %2, "
      "%3;"
      " st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [there], %1, [full]; }" ::"r"(
          shared_address(&word)),
      "r"(value), "r"(shared_address(&barrier)), "r"(rank)
      : "memory");
}

// ---- TMA -------------------------------------------------------------------------------------------------

enum class CachePolicy : uint64_t {  // L2 eviction priorities, as createpolicy encodes them
  kNormal = 0x1000000000000000,
  kEvictFirst = 0x12F0000000000000,
  kEvictLast = 0x14F0000000000000,
};

__device__ __forceinline__ void prefetch_to_l2(const void* at) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(__cvta_generic_to_global(at)) : "memory");
}

__device__ __forceinline__ void prefetch_tensormap(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Copies a box from global to shared memory and completes its bytes on the mbarrier. Elements outside the
// tensor are zero.
__device__ __forceinline__ void cp_async_bulk_tensor_load(uint32_t destination, const CUtensorMap& map,
                                                          Mbarrier& barrier, int c0, int c1, int c2, int c3,
                                                          CachePolicy policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.L2::cache_hint"
      " [%0], [%1, {%3, %4, %5, %6}], [%2], %7;" ::"r"(destination),
      "l"(&map), "r"(shared_address(&barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3),
      "l"(static_cast<uint64_t>(policy))
      : "memory");
}

// The same, to the same address in both CTAs of a pair, each with its own mbarrier there.
__device__ __forceinline__ void cp_async_bulk_tensor_multicast_to_pair(uint32_t destination,
                                                                       const CUtensorMap& map,
                                                                       Mbarrier& barrier, int c0, int c1,
                                                                       int c2, int c3, CachePolicy policy) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
      ".L2::cache_hint [%0], [%1, {%3, %4, %5, %6}], [%2], %7, %8;" ::"r"(destination),
      "l"(&map), "r"(shared_address(&barrier)), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "h"(uint16_t{3}),
      "l"(static_cast<uint64_t>(policy))
      : "memory");
}

// Copies a box from shared to global memory, in the thread's current bulk group. Elements outside the tensor
// are not written.
__device__ __forceinline__ void cp_async_bulk_tensor_store(const CUtensorMap& map, uint32_t source, int c0,
                                                           int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map),
      "r"(source), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

__device__ __forceinline__ void cp_async_bulk_commit_group() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until the sources of all but kLeft of the thread's bulk groups have been read, so shared memory may
// be reused.
template <int kLeft = 0>
__device__ __forceinline__ void cp_async_bulk_wait_group_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kLeft) : "memory");
}

// Waits until all of the thread's bulk groups are complete and their writes are done.
__device__ __forceinline__ void cp_async_bulk_wait_group() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Orders this thread's ordinary shared-memory accesses before later ones of TMA and wgmma.
__device__ __forceinline__ void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// ---- registers and conversions ---------------------------------------------------------------------------

template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

__device__ __forceinline__ void stmatrix_x4(uint32_t address, uint32_t r0, uint32_t r1, uint32_t r2,
                                            uint32_t r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared::cta.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(r0), "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}

__device__ __forceinline__ void ldmatrix_x4(uint32_t address, uint32_t (&r)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared::cta.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float lg2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ float rcp(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Two floats to two 16-bit elements, `low` in the low half.
template <class Element>
__device__ __forceinline__ uint32_t cvt_x2(float low, float high);

template <>
__device__ __forceinline__ uint32_t cvt_x2<__nv_bfloat16>(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

template <>
__device__ __forceinline__ uint32_t cvt_x2<__half>(float low, float high) {
  uint32_t packed;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  return packed;
}

// Two packed elements times two floats, packed. The floats are rounded first, which takes the range of bf16:
// in f16 they might overflow where an element is 0.
template <class Element>
__device__ __forceinline__ uint32_t scale_x2(uint32_t pair, float low, float high);

template <>
__device__ __forceinline__ uint32_t scale_x2<__nv_bfloat16>(uint32_t pair, float low, float high) {
  uint32_t product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(pair), "r"(cvt_x2<__nv_bfloat16>(low, high)));
  return product;
}

// Two packed elements as floats.
template <class Element>
__device__ __forceinline__ float2 unpack_x2(uint32_t pair);

template <>
__device__ __forceinline__ float2 unpack_x2<__nv_bfloat16>(uint32_t pair) {
  return make_float2(__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u));
}

template <>
__device__ __forceinline__ float2 unpack_x2<__half>(uint32_t pair) {
  return make_float2(__half2float(__ushort_as_half(static_cast<unsigned short>(pair))),
                     __half2float(__ushort_as_half(static_cast<unsigned short>(pair >> 16))));
}

}  // namespace longspan::sm90
