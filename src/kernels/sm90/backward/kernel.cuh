// The backward kernel: dq, dk and dv of one attention, any mask, from a tile map read by columns.
//
// Tile plan. One persistent CTA an SM: a load warpgroup and two consumer warpgroups, or three, of 64 keys
// each, which hold their dk and dv in registers.
//
//   queries x keys    dQ accumulation          dQ buffers     registers a thread (load, consumers)
//   64 x 128          TMA reduction            2              40, 232
//   64 x 128, in rows TMA reduction            1              24, 240 (head_dim 64: 40, 232)
//   80 x 128          TMA reduction            1              24, 240
//   128 x 128         TMA reduction            1              24, 240                  head_dim 64
//   64 x 192          TMA reduction            1 for each     32, 160                  head_dim 64
//   64 x 64           red.add from registers   none           24, 240
//
// With 64 keys a tile, each warpgroup is a stream with work items of its own.
// A CTA takes work items (key tile, query heads of a KV head) from a counter or from a BackwardSchedule, and
// goes over the row tiles that see the keys. Scores are transposed, so a thread's rows are keys, and p and ds
// are operands of dv += p^T do and dk += ds^T q straight from registers. Only ds passes through shared
// memory, for dq = ds k over the keys of both. Where sums of dq lie in token rows (documents, windows),
// the warpgroups take turns with dq, a tile later, and pass over tiles in which none of their keys is seen.
// Timeline, [...] is on the tensor cores:
//
//   load warp     K Q0 V dO0 | Q1 dO1 | Q2 dO2 | ...                as far ahead as the rings allow
//   warpgroup 0   [S0 dP0] exp 0 [dV0] ds 0 [dV0 dK0]  [S1 dP1] exp 1 [dV1] ds 1 [dV1 dK1 dQ0] dq 0 out ...
//   warpgroup 1   [S0 dP0] ... [dV1 dK1]  [S2 dP2] exp 2 [dV2] ds 2 [dV2 dK2 dQ1] dq 1 out ...
//   send warps    one for each warpgroup: dq 0 or 1, then 2 or 3, ... to their fp32 sums in global memory
//
// Three warpgroups with tiles of 192 keys take turns in the same way. In bf16, where sums of dq lie as
// threads hold them (long masks), each warpgroup computes half of dq a tile
// later, and its products fill the gaps of the other:
//
//   warpgroup 0   [S1 dP1] exp 1 [dV1] ds 1 [dQ0 dV1 dK1] dq 0 out  [S2 dP2] exp 2 ...
//   warpgroup 1                  [S1 dP1] exp 1 [dV1] ds 1 [dQ0 dV1 dK1] dq 0 out  [S2 dP2] ...
//
// Else both meet at each |, where ds of both is stored, and compute half of dq each:
//
//   both          [S0 dP0] exp 0 [dV0] ds 0 [dV0] | [dQ0 dK0] dq 0 out  [S1 dP1] exp 1 [dV1] ds 1 [dV1] | ...
//
// dq of a row tile that one key tile comes to is written to the output. If additions are ordered, a warp for
// each warpgroup waits for their turns. Some CTAs may do the passes before and after first (pass_group.cuh).
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/sm90/backward/alternating_consumer.cuh"
#include "kernels/sm90/backward/apart_consumer.cuh"
#include "kernels/sm90/backward/config.cuh"
#include "kernels/sm90/backward/meeting_consumer.cuh"
#include "kernels/sm90/backward/params.h"
#include "kernels/sm90/backward/pass_group.cuh"
#include "kernels/sm90/backward/producer.cuh"
#include "kernels/sm90/backward/sender.cuh"
#include "kernels/sm90/backward/wide_consumer.cuh"
#include "kernels/sm90/isa/dependent_launch.cuh"
#include "kernels/sm90/isa/thread_index.cuh"

namespace longspan::sm90 {

template <class C>
__device__ void init_backward_barriers(BackwardStreamState<C>& state) {
  const auto ring = [](Mbarrier* full, Mbarrier* empty, int size) {
    for (int i = 0; i < size; ++i) {
      mbarrier_init(full[i], 1);
      mbarrier_init(empty[i], C::kConsumerWarps);
    }
  };
  for (int i = 0; i < C::kQStages; ++i) {
    mbarrier_init(state.q_full[i], 1);
    mbarrier_init(state.q_empty[i], 32 * (C::kConsumerWarps + (C::kKeepsTurns ? 1 : 0)));
  }
  ring(state.do_full, state.do_empty, C::kDoStages);
  ring(&state.k_full, &state.k_empty, 1);
  ring(&state.v_full, &state.v_empty, 1);
  for (int i = 0; i < C::kWarpgroups; ++i) {
    for (int j = 0; j < C::kDqBuffers; ++j) {
      mbarrier_init(state.dq_full[i][j], 4);  // the warps of a warpgroup
      mbarrier_init(state.dq_empty[i][j], 1);
    }
  }
  if constexpr (C::kApart || C::kTakeTurns)
    for (int i = 0; i < C::kDsBuffers; ++i) mbarrier_init(state.ds_full[i], C::kConsumerWarps);
  if constexpr (C::kTakeTurns)
    for (int i = 0; i < C::kDsBuffers; ++i) mbarrier_init(state.ds_empty[i], 4);  // the warps of a warpgroup
  if constexpr (C::kKeepsTurns) ring(state.turn_come, state.dq_added, 1);
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1)
    sm90_backward(const __grid_constant__ BackwardParams params) {
  extern __shared__ __align__(1024) uint8_t raw[];
  auto& shared = *reinterpret_cast<BackwardSharedMemory<C>*>(raw);
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32;

  if (threadIdx.x == 0) {
    prefetch_tensormap(params.q);
    prefetch_tensormap(params.dout);
    prefetch_tensormap(params.k);
    prefetch_tensormap(params.v);
    for (int i = 0; i < C::kStreams; ++i) init_backward_barriers<C>(shared.state[i]);
    fence_mbarrier_init();
  }
  griddepcontrol_launch_dependents();
  if (C::kPasses && params.pass_ctas > 0) {
    griddepcontrol_wait();
    // The first CTAs to begin do passes, since the others wait for these.
    if (threadIdx.x == 0) shared.begun = atomicAdd(params.counters + kCtasBegun, 1);
  }
  __syncthreads();
  int worker = blockIdx.x, workers = gridDim.x;
  if constexpr (C::kPasses) {
    if (params.pass_ctas > 0) {
      worker = shared.begun - params.pass_ctas;
      workers -= params.pass_ctas;
      if (worker < 0) {
        do_passes<C>(params, reinterpret_cast<BackwardPassMemory<C>&>(shared.memory[0]), shared.begun,
                     warpgroup, warp);
        if (threadIdx.x == 0) shared.begun = take_item(params, workers);
        __syncthreads();
        worker = shared.begun;
      }
    }
  }

  if (warpgroup == 0) {
    setmaxnreg_dec<C::kProducerRegisters>();
    if (warp < C::kStreams) {
      BackwardLoader<C>(params, shared.memory[warp], shared.state[warp], lane)
          .run(worker * C::kStreams + warp, workers * C::kStreams);
    } else if (C::kBulk && warp <= C::kWarpgroups) {
      if (lane == 0) send_dq<C>(params, shared.memory[0], shared.state[0], warp - 1);
    } else if (C::kKeepsTurns && warp < 2 * C::kStreams) {
      keep_turns<C>(params, shared.state[warp - C::kStreams], lane);
    }
  } else {
    setmaxnreg_inc<C::kConsumerRegisters>();
    const int stream = (warpgroup - 1) / C::kWarpgroups;
    using WithShares = std::conditional_t<C::kApart, BackwardApartConsumer<C>, BackwardMeetingConsumer<C>>;
    using InTurns = std::conditional_t<C::kWide, BackwardWideConsumer<C>, BackwardAlternatingConsumer<C>>;
    using Consumer = std::conditional_t<C::kTakeTurns, InTurns, WithShares>;
    Consumer(params, shared.memory[stream], shared.state[stream], stream, (warpgroup - 1) % C::kWarpgroups,
             thread_index<128, C::kKeepsThread>())
        .run();
  }
}

}  // namespace longspan::sm90
