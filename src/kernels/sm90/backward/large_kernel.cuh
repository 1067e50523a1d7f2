// The backward kernel above head_dim 128: dq, dk and dv of one attention, any mask, from a tile map read by
// columns.
//
// Tile plan. One persistent CTA of 384 threads an SM: a load warpgroup and two consumer warpgroups that share
// a tile of 64 queries by 64 keys. Neither has registers for dk and dv of its keys, so each holds one of them
// and computes what that needs:
//
//   first warpgroup    S^T = K Q^T, P, dV += P^T dO, half of dQ        dv in registers
//   second warpgroup   dP^T = V dO^T, dS, dK += dS^T Q, half of dQ     dk in registers
//
// So K, V, Q and dO are each read by one warpgroup for a product. P goes from a thread to the same thread of
// the other warpgroup, by shared memory, as it is rounded for dV. dS passes through shared memory for dQ^T =
// K^T dS^T, of which each warpgroup computes panels of 64 of head_dim and adds them to fp32 sums. The first
// warpgroup runs ahead and computes its panels one tile later. Timeline, [...] is on the tensor cores:
//
//   load warp     Q0 dO0 K V | Q1 dO1 | Q2 dO2 | ...                 as far ahead as the rings allow
//   warpgroup 0   [S0] exp 0 [dV0]   [S1] exp 1 [dV1 dQ0] dq 0 out   [S2] exp 2 [dV2 dQ1] dq 1 out ...
//   warpgroup 1     [dP0]    ds 0 [dK0 dQ0] dq 0 out   [dP1] ds 1 [dK1 dQ1] dq 1 out ...
//
// If additions are ordered, a warp for each warpgroup waits for their turns.
#pragma once

#include <cstdint>

#include "kernels/sm90/backward/large_config.cuh"
#include "kernels/sm90/backward/large_consumer.cuh"
#include "kernels/sm90/backward/params.h"
#include "kernels/sm90/backward/producer.cuh"
#include "kernels/sm90/backward/sender.cuh"
#include "kernels/sm90/isa/dependent_launch.cuh"
#include "kernels/sm90/isa/thread_index.cuh"

namespace longspan::sm90 {

template <class C>
__device__ void init_large_barriers(BackwardStreamState<C>& state) {
  constexpr int kWarps = 4;  // of a warpgroup
  for (int i = 0; i < C::kQStages; ++i) {
    mbarrier_init(state.q_full[i], 1);
    mbarrier_init(state.q_empty[i], 32 * (2 * kWarps + (C::kKeepsTurns ? C::kWarpgroups : 0)) +
                                        (C::kBulk ? C::kWarpgroups : 0));
  }
  for (int i = 0; i < C::kDoStages; ++i) {
    mbarrier_init(state.do_full[i], 1);
    mbarrier_init(state.do_empty[i], C::kBulk ? kWarps + 1 : 2 * kWarps);
  }
  mbarrier_init(state.k_full, 1);
  mbarrier_init(state.k_empty, 2 * kWarps);
  mbarrier_init(state.v_full, 1);
  mbarrier_init(state.v_empty, kWarps);
  for (int i = 0; i < C::kPBuffers; ++i) {
    mbarrier_init(state.p_full[i], 32 * kWarps);
    mbarrier_init(state.p_empty[i], 32 * kWarps);
  }
  for (int i = 0; i < C::kDsBuffers; ++i) {
    mbarrier_init(state.ds_full[i], kWarps);
    mbarrier_init(state.ds_empty[i], 2 * kWarps);
  }
  for (int i = 0; i < C::kWarpgroups; ++i) {
    for (int j = 0; j < C::kQStages; ++j) mbarrier_init(state.dq_full[i][j], kWarps);
    mbarrier_init(state.turn_come[i], 1);
    mbarrier_init(state.dq_added[i], kWarps);
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    sm90_backward_large(const __grid_constant__ BackwardParams params) {
  extern __shared__ __align__(1024) uint8_t raw[];
  auto& shared = *reinterpret_cast<LargeBackwardMemory<C>*>(raw);
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const int lane = thread_index<32, C::kKeepsLane>();

  if (threadIdx.x == 0) {
    prefetch_tensormap(params.q);
    prefetch_tensormap(params.dout);
    prefetch_tensormap(params.k);
    prefetch_tensormap(params.v);
    init_large_barriers<C>(shared.state);
    fence_mbarrier_init();
  }
  griddepcontrol_launch_dependents();
  __syncthreads();

  if (warpgroup == 0) {
    setmaxnreg_dec<C::kProducerRegisters>();
    if (warp == 0)
      BackwardLoader<C>(params, shared.memory, shared.state, lane).run(blockIdx.x, gridDim.x);
    else if (C::kKeepsTurns && warp <= C::kWarpgroups)
      keep_turns<C>(params, shared.state, lane, warp - 1);
    else if (C::kBulk && warp <= C::kWarpgroups && lane == 0)
      send_share_of_dq<C>(params, shared.memory, shared.state, warp - 1);
  } else {
    setmaxnreg_inc<C::kConsumerRegisters>();
    if (warpgroup == 1)
      ScoreConsumer<C>(params, shared.memory, shared.state, threadIdx.x % 128).run();
    else
      DifferenceConsumer<C>(params, shared.memory, shared.state, threadIdx.x % 128).run();
  }
}

}  // namespace longspan::sm90
