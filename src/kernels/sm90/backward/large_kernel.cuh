// The backward kernel above head_dim 128: dq, dk and dv of one attention, any mask, from a tile map read by
// columns.
//
// Tile plan. A persistent CTA pair of 384 threads a CTA shares items of 128 keys. Each CTA has 64 of them,
// and walks the same tiles of 64 queries as the other one. It loads half of the panels of q and do for both.
// A CTA is a load warpgroup and two consumer warpgroups. Neither of these has registers for dk and dv of its
// keys, so each holds one of them and computes what that needs:
//
//   first warpgroup    S^T = K Q^T, P, dV += P^T dO, some of dQ        dv in registers
//   second warpgroup   dP^T = V dO^T, dS, dK += dS^T Q, some of dQ     dk in registers
//
// So K, V, Q and dO are each read by one warpgroup for a product. P goes from a thread to the same thread of
// the other warpgroup, by shared memory, as it is rounded for dV. dS takes its place, and is sent to the
// other CTA: the pair's four warpgroups compute panels of 64 of head_dim of dQ^T = K^T dS^T over all 128
// keys, and a tile's dQ is added to its fp32 sums once, not twice. TMA adds it, from where dS or dO have
// been. The first warpgroup runs ahead and computes its panel one tile later. Timeline, [...] is on the
// tensor cores:
//
//   load warp     Q0 dO0 K V | Q1 dO1 | Q2 dO2 | ...                 as far ahead as the rings allow
//   warpgroup 0   [S0] exp 0 [dV0]   [S1] exp 1 [dV1 dQ0] dq 0 out   [S2] exp 2 [dV2 dQ1] dq 1 out ...
//   warpgroup 1     [dP0] ds 0, to the other CTA [dK0 dQ0] dq 0 out    [dP1] ds 1 ... [dK1 dQ1] dq 1 out ...
//
// A warp for each warpgroup sends dq; if additions are ordered, it waits for their turns.
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
  const auto init = [](auto& barriers, uint32_t arrivals) {
    for (Mbarrier& barrier : barriers) mbarrier_init(barrier, arrivals);
  };
  init(state.q_full, 1);
  init(state.q_empty, 32 * 2 * kWarps + C::kWarpgroups);  // each lane; the send warps
  init(state.other_q_empty, kWarps);
  init(state.do_full, 1);
  init(state.do_empty, 2);
  mbarrier_init(state.k_full, 1);
  mbarrier_init(state.k_empty, 2 * kWarps);
  mbarrier_init(state.v_full, 1);
  mbarrier_init(state.v_empty, kWarps);
  init(state.dv_done, kWarps);
  init(state.second_dq_full, kWarps);
  init(state.p_full, 32 * kWarps);
  init(state.ds_full, 1);
  init(state.other_ds_full, 1);
  init(state.ds_read, 2 * kWarps + 1);
  init(state.first_dq_full, kWarps);
  init(state.ds_empty, 2);
  init_pair_numbers(state.numbers);
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
  cluster_sync();  // the other CTA's barriers are there

  if (warpgroup == 0) {
    setmaxnreg_dec<C::kProducerRegisters>();
    if (warp == 0)
      BackwardLoader<C>(params, shared.memory, shared.state, lane)
          .run(static_cast<int>(blockIdx.x / 2), static_cast<int>(gridDim.x / 2));
    else if (warp <= C::kWarpgroups && lane == 0)
      send_share_of_dq<C>(params, shared.memory, shared.state, warp - 1);
  } else {
    setmaxnreg_inc<C::kConsumerRegisters>();
    if (warpgroup == 1)
      ScoreConsumer<C>(params, shared.memory, shared.state, threadIdx.x % 128).run();
    else
      DifferenceConsumer<C>(params, shared.memory, shared.state, threadIdx.x % 128).run();
  }
  cluster_sync();  // the other CTA does not write to this one's memory any more
}

}  // namespace longspan::sm90
