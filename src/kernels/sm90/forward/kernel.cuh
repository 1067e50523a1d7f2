// The forward kernel: o and lse of one attention, any mask, from a tile map.
//
// Tile plan. One persistent CTA an SM: a load warpgroup and two consumer warpgroups of 64 rows (40 and 232
// registers a thread), three (32 and 160) or four (24 and 112).
//
//   instance          rows of an item       keys a tile    Q is read from           streams
//   tall              192                   80             shared memory (2)        1
//   128               128                   128            registers                1
//   gathered          64 tokens x 2 heads   2 x 64         registers                1
//   two streams       2 x 64                2 x 64         registers                2
//   tall, 64          256                   64             shared memory (2)        1
//   head_dim 64       192                   128            shared memory (2)        1
//   192/128           192                   80             shared memory (1)        1
//   256               128                   80             shared memory (1)        1
//   256, in pairs     128 of each CTA       80             shared memory (1)        1, K and V by multicast
//
// Rows are tokens times query heads of a GQA group. A stream has a load warp, a row warp and its consumers.
// It takes work items (row tile, heads) from a counter, heaviest first. Timeline, [...] is on the tensor
// cores:
//
//   load warp    K0 | K1 V0 | K2 V1 | K0' V2 | K1' V0' | ...              as far ahead as the ring allows
//   row warp     Q, Q'                                                        O -> global, Q''
//   warpgroup 0  [S0] exp 0 [S1 O+=P0V0] exp 1 [S2 O+=P1V1] exp 2 [S0' O+=P2V2] O out, exp 0' [S1' ...
//   warpgroup 1     [S0] exp 0 [S1 O+=P0V0] exp 1 [S2 O+=P1V1] exp 2 ...   in the gaps of warpgroup 0
//
// The loop runs over tiles, not over items: the next item's first product is issued with the last one of the
// current item, so a short item has no prologue of its own. One warpgroup multiplies while others compute
// exponentials. Two or three issue their products in turns: those that begin together would stay in step
// (docs/lab/2026-11-sm90-forward.md, version 26). More warpgroups hide each other's waits better, most of all
// at head_dim 64, where exponentials take as long as products. Above head_dim 128 there is
// room for one q and none for o: the next q is loaded behind the item's last scores, and consumers store o
// from registers. Short items wait for the buffers of q. So a row warp serves these, not the load warp
// between its lookups, and each warpgroup has barriers of its own.
#pragma once

#include <cstdint>

#include "kernels/sm90/forward/config.cuh"
#include "kernels/sm90/forward/consumer.cuh"
#include "kernels/sm90/forward/params.h"
#include "kernels/sm90/forward/producer.cuh"
#include "kernels/sm90/isa/ptx.cuh"

namespace longspan::sm90 {

template <class C>
__device__ void init_barriers(StreamBarriers<C>& b) {
  constexpr int kConsumerWarps = 4 * C::kWarpgroups;
  for (int w = 0; w < C::kWarpgroups; ++w) {
    for (int i = 0; i < C::kQBuffers; ++i) {
      mbarrier_init(b.q_full[i][w], 1);
      mbarrier_init(b.q_empty[i][w], 4);  // the warps of the warpgroup
    }
  }
  for (int i = 0; i < C::kItemNotes; ++i) {
    mbarrier_init(b.item_full[i], 1);
    mbarrier_init(b.item_empty[i], 1);
  }
  for (int i = 0; i < C::kSlots; ++i) {
    mbarrier_init(b.full[i], 1);
    mbarrier_init(b.empty[i], C::kPaired ? 2 * kConsumerWarps : kConsumerWarps);
  }
  for (PairNumbers& numbers : b.numbers) init_pair_numbers(numbers);
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1) sm90_forward(const __grid_constant__ ForwardParams params) {
  extern __shared__ __align__(1024) uint8_t raw[];
  auto& shared = *reinterpret_cast<SharedMemoryPlan<C>*>(raw);
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32;

  const auto worker = static_cast<int>(C::kPaired ? blockIdx.x / 2 : blockIdx.x * C::kStreams),
             workers = static_cast<int>(C::kPaired ? gridDim.x / 2 : gridDim.x * C::kStreams);

  if (warp == 1) prefetch_plan(params, lane);
  if (threadIdx.x == 0) {
    prefetch_tensormap(params.q);
    prefetch_tensormap(params.k);
    prefetch_tensormap(params.v);
    if (!C::kLoneQuery && params.o_f32 == nullptr) prefetch_tensormap(params.o);
    for (int i = 0; i < C::kStreams; ++i) init_barriers<C>(shared.barriers[i]);
    fence_mbarrier_init();
  }
  if constexpr (C::kPaired)
    cluster_sync();  // the other CTA's barriers are there
  else
    __syncthreads();
  if constexpr (kFaulty) fault_at_start(params, warp, lane, shared.barriers[0].item);

  // Code comes from memory at first. The compiler puts the last branch first, right behind what has run: the
  // load warps', for which all others wait.
  if (warpgroup > 0) {
    setmaxnreg_inc<C::kConsumerRegisters>();
    const int stream = (warpgroup - 1) / C::kWarpgroups;
    Consumer<C>(params, shared.stream[stream], shared.barriers[stream], (warpgroup - 1) % C::kWarpgroups,
                threadIdx.x % 128)
        .run();
  } else {
    setmaxnreg_dec<C::kProducerRegisters>();
    const int stream = warp / 2;
    if (stream < C::kStreams) {
      if (warp % 2 == 1) {
        if (lane == 0) RowMover<C>(params, shared.stream[stream], shared.barriers[stream]).run();
      } else {
        Loader<C>(params, shared.stream[stream], shared.barriers[stream], lane).run(worker + stream, workers);
      }
    }
  }
  if constexpr (C::kPaired) cluster_sync();  // the other CTA does not load into this one's memory any more
}

}  // namespace longspan::sm90
