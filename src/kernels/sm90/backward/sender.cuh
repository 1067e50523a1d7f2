// The backward kernel's send warps, which add dq to its sums in global memory, and the warps that keep turns.
#pragma once

#include <cstdint>

#include "kernels/sm90/backward/config.cuh"
#include "kernels/sm90/backward/params.h"

namespace longspan::sm90 {

// Returns true for the first CTA to come to this half tile, which then stores it. Else returns once it is
// stored.
__device__ __forceinline__ bool claim(int32_t* state) {
  if (ld_acquire(state) != kStored) {
    if (atomicCAS(state, kUntouched, kBeingStored) == kUntouched) return true;
    while (ld_acquire(state) != kStored) {
    }
  }
  fence_proxy_async_all();
  return false;
}

// Adds a quarter: half of dk or dv of a warpgroup's 64 keys, as warps hold it, each in a place of its own.
// The first item stores, others add.
template <class C>
__device__ __forceinline__ void add_quarter(const BackwardParams& params, uint32_t source, const DqJob& job,
                                            int warpgroup) {
  constexpr int kOfWarp = 16 * C::kHeadDim, kHalf = kOfWarp / 2;
  float* sum = params.dkv + (int64_t{job.first} * 2 + job.count / 2) * C::kKeys * C::kHeadDim +
               warpgroup * 4 * kOfWarp + job.count % 2 * kHalf;
#pragma unroll
  for (int warp = 0; warp < 4; ++warp) {
    float* to = sum + warp * kOfWarp;
    const uint32_t from = source + warp * (C::kDqFloats / 4) * sizeof(float);
    if (job.turn == 0)
      cp_async_bulk_store(to, from, kHalf * sizeof(float));
    else
      cp_reduce_async_bulk_add(to, from, kHalf * sizeof(float));
  }
}

// Runs in one lane for each warpgroup's share of dq.
template <class C>
__device__ void send_dq(const BackwardParams& params, BackwardStreamMemory<C>& memory,
                        BackwardStreamState<C>& state, int warpgroup) {
  const int share = C::kDqShares > 1 ? warpgroup : 0;  // of its tiles
  bool released = true;                                // the previous job's buffer
  for (uint32_t number = 0;; ++number) {
    const int slot = number % C::kDqBuffers;
    mbarrier_wait(state.dq_full[warpgroup][slot], number / C::kDqBuffers % 2);
    const DqJob job = state.dq_job[warpgroup][slot];
    if (job.tile == kNoMoreJobs) break;
    const uint32_t source = shared_address(memory.dq[slot][warpgroup]);
    if constexpr (C::kInAnyOrder) {
      if (job.tile == kQuarterOfSums) {
        if constexpr (C::kDqBuffers > 1) {
          if (number > 0 && !released) {
            cp_async_bulk_wait_group_read<0>();
            mbarrier_arrive(state.dq_empty[warpgroup][slot ^ 1]);
          }
        }
        int32_t* parts = params.parts + int64_t{job.first} * C::kConsumers + warpgroup;
        if (job.turn > 0 && job.count == 0) {
          while (ld_acquire(parts) < kPartAdded) {
          }
          fence_proxy_async_all();
        }
        add_quarter<C>(params, source, job, warpgroup);
        cp_async_bulk_commit_group();
        cp_async_bulk_wait_group_read<0>();
        mbarrier_arrive(state.dq_empty[warpgroup][slot]);
        released = true;
        if (job.count == 3) {
          cp_async_bulk_wait_group();
          red_add_release(parts, kPartAdded);
        }
        continue;
      }
    }
    int64_t offset = (int64_t{job.tile} * C::kDqShares + share) * C::kDqFloats;
    uint32_t bytes = C::kDqFloats * sizeof(float);
    if constexpr (C::kInRows) {
      int rows = C::kPasses ? job.count & ~kLastOfItem : job.count;
      const int64_t first_row = int64_t{job.tile / params.row_tiles} * params.tokens_q + job.first;
      rows = min(max(rows - 64 * share, 0), 64);
      offset = (first_row + 64 * share) * C::kDqColumns;
      bytes = rows * C::kDqColumns * sizeof(float);
    }
    float* sum = params.dq + offset;
    int32_t* turn = params.turn + int64_t{job.tile} * 2 + share;
    int32_t next_turn = -1;  // what others wait for; -1: nothing
    bool stores = false;
    const bool adds = job.turn >= 0 && (!C::kHalves || bytes > 0);  // the second half may have no rows
    if constexpr (C::kOrdered) {
      if (adds) {
        while (ld_acquire(turn) != job.turn) {
        }
        fence_proxy_async_all();
        next_turn = job.turn + 1;
        stores = job.turn == 0;
      }
    } else if (C::kClaimed && adds) {
      if (job.turn >> share & 1) {
        fence_proxy_async_all();
      } else {
        stores = claim(turn);
        if (stores) next_turn = kStored;
      }
    }
    if (stores)
      cp_async_bulk_store(sum, source, bytes);
    else if (adds)
      cp_reduce_async_bulk_add(sum, source, bytes);
    cp_async_bulk_commit_group();
    if constexpr (C::kDqBuffers > 1) {  // the previous buffer has been read
      if (number > 0 && !released) {
        cp_async_bulk_wait_group_read<1>();
        mbarrier_arrive(state.dq_empty[warpgroup][slot ^ 1]);
      }
      released = false;
    }
    if (C::kDqBuffers == 1 || next_turn >= 0) {
      cp_async_bulk_wait_group_read<0>();
      mbarrier_arrive(state.dq_empty[warpgroup][slot]);
      released = true;
    }
    if (next_turn >= 0) {
      cp_async_bulk_wait_group();
      // Completed bulk operations are visible to ordinary accesses (PTX ISA, "Async proxy").
      st_release(turn, next_turn);
    }
    if constexpr (C::kPasses) {
      if (job.count & kLastOfItem) {
        cp_async_bulk_wait_group();
        // As above: completed bulk operations are visible after this release.
        red_add_release(params.added + params.section_of(job.tile / params.row_tiles / params.group), 1);
      }
    }
  }
  cp_async_bulk_wait_group();
}

// The same for a CTA of a pair: a share of dq takes the place of the tile's ds (the first warpgroup's) or do,
// and frees it in both CTAs. The ring of q says which tile it is.
template <class C>
__device__ void send_share_of_dq(const BackwardParams& params, BackwardStreamMemory<C>& memory,
                                 BackwardStreamState<C>& state, int warpgroup) {
  constexpr int kPanelFloats = 64 * C::kRows;
  // A half of the rows of a panel, as warps hold it, is not contiguous.
  constexpr int kPieces = C::kSharesPanel ? 4 : 1;
  constexpr int kPieceFloats = 64 * C::kDqRowsOfSecond / kPieces;
  const int rank = cluster_ctarank(), panel = C::dq_panel(rank, warpgroup);
  const bool first = warpgroup == 0;
  RingPosition<C::kQStages> at;  // in the rings of q and do
  RingPosition<C::kDsBuffers> ds;
  for (;; at.advance(), ds.advance()) {
    mbarrier_wait(state.q_full[at.slot], at.parity);
    if (state.note[at.slot].flags & kNoMoreWork) break;
    const int32_t tile = state.note[at.slot].dq_tile, turn = state.turn[at.slot];
    mbarrier_arrive(state.q_empty[at.slot]);
    if (first)
      mbarrier_wait(state.first_dq_full[ds.slot], ds.parity);
    else
      mbarrier_wait(state.second_dq_full[at.slot], at.parity);
    int32_t* const turn_now = params.turn + (int64_t{tile} * 2 + rank) * C::kWarpgroups + warpgroup;
    if (turn >= 0) {
      if constexpr (C::kOrdered) {
        while (ld_acquire(turn_now) != turn) {
        }
        fence_proxy_async_all();
      }
      const auto send = [&](float* sum, uint32_t from, int floats) {
        if (C::kOrdered && turn == 0)
          cp_async_bulk_store(sum, from, floats * sizeof(float));
        else
          cp_reduce_async_bulk_add(sum, from, floats * sizeof(float));
      };
      float* const sum = params.dq + int64_t{tile} * C::kRows * C::kHeadDim + panel * kPanelFloats;
      if (first) {
        send(sum, shared_address(memory.ds[ds.slot]), kPanelFloats);
      } else {
        float* const own = sum + (C::kSharesPanel ? rank * kPieceFloats : 0);
        const uint32_t from = shared_address(memory.dout[at.slot]);
#pragma unroll
        for (int piece = 0; piece < kPieces; ++piece)
          send(own + piece * (kPanelFloats / kPieces), from + piece * kPieceFloats * sizeof(float),
               kPieceFloats);
      }
      cp_async_bulk_commit_group();
      cp_async_bulk_wait_group_read<0>();
    }
    Mbarrier& empty = first ? state.ds_empty[ds.slot] : state.do_empty[at.slot];
    mbarrier_arrive(empty);
    mbarrier_arrive_at(empty, rank ^ 1);
    if (C::kOrdered && turn >= 0) {
      cp_async_bulk_wait_group();
      // Completed bulk operations are visible to ordinary accesses (PTX ISA, "Async proxy").
      st_release(turn_now, turn + 1);
    }
  }
  cp_async_bulk_wait_group();
}

// A warp for each stream whose threads add dq in order. It polls for the tile's turn while they compute. Once
// all of them have added, it passes the turn on, which takes until the sums are in memory.
template <class C>
__device__ void keep_turns(const BackwardParams& params, BackwardStreamState<C>& state, int lane) {
  RingPosition<C::kQStages> q;
  int first = -32, turns = 0;  // of the walk, one a lane, from place `first` on
  for (uint32_t parity = 0;; parity ^= 1) {
    mbarrier_wait(state.q_full[q.slot], q.parity);
    if (state.note[q.slot].flags & kNoMoreWork) break;
    const int32_t tile = state.job[q.slot].tile, place = state.job[q.slot].turn;
    mbarrier_arrive(state.q_empty[q.slot]);  // each lane for its own reads
    q.advance();
    const bool adds = place >= 0;
    if (adds && (place < first || place >= first + 32)) {
      first = place;
      turns = __ldg(params.turns + first + lane);
    }
    const int32_t own = adds ? __shfl_sync(0xffffffff, turns, place - first) : -1;
    int32_t* turn = params.turn + int64_t{tile} * 2;
    if (lane == 0) {
      if (adds)
        while (ld_acquire(turn) != own) {
        }
      state.turn[0] = own;
      mbarrier_arrive(state.turn_come[0]);
      mbarrier_wait(state.dq_added[0], parity);
      // The additions precede this release, as they precede the threads' arrivals at the barrier.
      if (adds) st_release(turn, own + 1);
    }
    __syncwarp();
  }
}

}  // namespace longspan::sm90
