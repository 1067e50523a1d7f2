// Pass CTAs: CTAs of the backward kernel that do most of the passes before and after it while the others
// compute (planner/pass_ctas.h). Passes are bound by memory and use no tensor cores, so a few CTAs that keep
// TMA busy hide them. They take work items when the jobs are done. Until then the load warpgroup has a load
// warp for each of the two other warpgroups. Timeline of such a pair, a group:
//
//   load warp     job 0 | job 1 | job 2 | ...   as far ahead as there are slots; publishes what is prepared
//   warpgroup     0 1 2 ...                     each warp has rows of its own, and no barriers
//
// The load warp alone waits for anything but TMA: it looks up 32 jobs at a time, waits for a section's items,
// and waits for stores before it publishes a job.
#pragma once

#include <cmath>
#include <cstdint>
#include <numbers>

#include "kernels/sm90/backward/config.cuh"
#include "kernels/sm90/backward/layout.h"
#include "kernels/sm90/backward/params.h"
#include "kernels/sm90/backward/rows.cuh"
#include "kernels/sm90/backward/vectors.cuh"

namespace longspan::sm90 {

struct alignas(8) BackwardPassJob {
  int32_t section = -1;  // -1: there are no more jobs
  int32_t prepares = 0;
  int32_t head = 0, row_tile = 0;
  int32_t first = 0, count = 0;  // the tile's rows; none if dq is in the output already
  int32_t untouched = 0;         // no key tile came to it, so its sums are undefined
};

// In place of BackwardStreamMemory.
template <class C>
struct BackwardPassMemory {
  static constexpr int kGroups = C::kConsumers, kSlots = 3;
  static constexpr uint32_t kTileBytes = C::kRows * C::kHeadDim * sizeof(float);  // o and do, or sums of dq
  alignas(1024) uint8_t tile[kGroups][kSlots][kTileBytes];
  BackwardPassJob job[kGroups][kSlots];
  Mbarrier full[kGroups][kSlots], empty[kGroups][kSlots];
  static_assert(kTileBytes == 2 * C::kRowBytes);
};

template <class C>
__device__ __forceinline__ float* sums_of(const BackwardParams& params, const BackwardPassJob& job) {
  return params.dq + (int64_t{job.head} * params.tokens_q + job.first) * C::kHeadDim;
}

// ---- the load warp of a group ----------------------------------------------------------------------------

template <class C>
class BackwardPassLoader {
 public:
  using Memory = BackwardPassMemory<C>;

  // Takes jobs `number`, `number + groups`, ...
  __device__ BackwardPassLoader(const BackwardParams& params, Memory& memory, int group, int number,
                                int groups, int lane)
      : params_(params),
        tile_(memory.tile[group]),
        job_(memory.job[group]),
        full_(memory.full[group]),
        empty_(memory.empty[group]),
        jobs_(params),
        groups_(groups),
        lane_(lane),
        next_(number + lane * groups) {}

  __device__ void run() {
    BackwardPassJob found;
    for (uint32_t number = 0;; ++number) {
      if (number % 32 == 0) {
        found = find();
        read_state(found);
      }
      BackwardPassJob job = job_of_lane(found, static_cast<int>(number % 32));
      if (job.section < 0) return end(number);
      if (!job.prepares && job.section > complete_) {
        wait_items(job.section, number);
        read_state(found);
        job.untouched = __shfl_sync(0xffffffff, found.untouched, static_cast<int>(number % 32));
      }
      const uint32_t slot = number % Memory::kSlots;
      if (number >= Memory::kSlots) settle(number + 1 - Memory::kSlots);
      if (lane_ == 0) load(job, slot);
      __syncwarp();
    }
  }

 private:
  static constexpr int kSaidAtOnce = 8;

  // This lane's next job.
  __device__ __forceinline__ BackwardPassJob find() {
    BackwardPassJob found;
    if (next_ < jobs_.jobs()) {
      const BackwardJob job = jobs_.job(next_);
      const int heads = jobs_.heads_of(job.section) * jobs_.group, tile = job.number / heads;
      const int2 extent = __ldg(reinterpret_cast<const int2*>(params_.row_tile + tile));
      found.section = job.section;
      found.prepares = job.prepares;
      found.head = jobs_.first_head(job.section) * jobs_.group + job.number - tile * heads;
      found.row_tile = tile;
      found.first = extent.x;
      found.count = extent.y;
      if (!job.prepares && params_.visited_once != nullptr && __ldg(params_.visited_once + tile))
        found.count = 0;
    }
    next_ += 32 * groups_;
    return found;
  }
  __device__ __forceinline__ static BackwardPassJob job_of_lane(const BackwardPassJob& found, int lane) {
    const auto of = [lane](int32_t word) { return __shfl_sync(0xffffffff, word, lane); };
    return {of(found.section), of(found.prepares), of(found.head),     of(found.row_tile),
            of(found.first),   of(found.count),    of(found.untouched)};
  }
  // Whether the tile of this lane's job is untouched, once that is known.
  __device__ __forceinline__ void read_state(BackwardPassJob& found) const {
    if (!C::kClaimed || found.prepares || found.section < 0 || found.section > complete_) return;
    const int64_t number = int64_t{found.head} * params_.row_tiles + found.row_tile;
    found.untouched = ld_relaxed(params_.turn + number * C::kWarpgroups) == kUntouched;
  }

  // Waits until the sums of a section are complete. Publishes first what it has prepared, since items may
  // wait for that. `number` jobs have been begun.
  __device__ __forceinline__ void wait_items(int section, uint32_t number) {
    const int items = jobs_.heads_of(section) * params_.items_per_head * C::kWarpgroups;
    const int32_t* added = params_.added + section;
    if (__any_sync(0xffffffff, ld_acquire(added) < items)) {
      settle(number);
      say();
      while (__any_sync(0xffffffff, ld_acquire(added) < items)) __nanosleep(100);
    }
    fence_proxy_async_all();
    complete_ = section;
  }

  __device__ __forceinline__ void load(const BackwardPassJob& job, uint32_t slot) {
    const uint32_t to = shared_address(tile_[slot]);
    Mbarrier& full = full_[slot];
    job_[slot] = job;
    if (job.prepares) {
      mbarrier_arrive_expect_tx(full, 2 * C::kRowBytes);
      cp_async_bulk_tensor_load(to, params_.o, full, 0, job.first, 0, job.head, CachePolicy::kEvictFirst);
      cp_async_bulk_tensor_load(to + C::kRowBytes, params_.dout, full, 0, job.first, 0, job.head,
                                CachePolicy::kNormal);
    } else {
      const uint32_t bytes = job.count * C::kHeadDim * sizeof(float);
      if (bytes == 0) return mbarrier_arrive(full);
      mbarrier_arrive_expect_tx(full, bytes);
      cp_async_bulk_load(to, sums_of<C>(params_, job), bytes, full);
    }
  }

  // Waits until all threads are done with the first `number` jobs.
  __device__ __forceinline__ void settle(uint32_t number) {
    for (; settled_ < number; ++settled_) {
      const uint32_t slot = settled_ % Memory::kSlots;
      mbarrier_wait(empty_[slot], settled_ / Memory::kSlots % 2);
      const bool prepared = job_[slot].prepares;
      const int section = job_[slot].section;
      if (!prepared || section != section_) say();
      section_ = section;
      unsaid_ += prepared;
      if (unsaid_ == kSaidAtOnce) say();
      __syncwarp();  // all lanes have read the slot, which lane 0 may refill now
    }
  }
  // Publishes prepared jobs. A release waits for all earlier stores, for about as long as a job takes.
  __device__ __forceinline__ void say() {
    __syncwarp();
    if (lane_ == 0 && unsaid_ > 0) red_add_release(params_.prepared + section_, unsaid_);
    unsaid_ = 0;
  }

  __device__ __forceinline__ void end(uint32_t number) {
    settle(number);
    say();
    if (lane_ != 0) return;
    const uint32_t slot = number % Memory::kSlots;
    job_[slot] = BackwardPassJob{};
    mbarrier_arrive(full_[slot]);
  }

  const BackwardParams& params_;
  uint8_t (&tile_)[Memory::kSlots][Memory::kTileBytes];
  BackwardPassJob (&job_)[Memory::kSlots];
  Mbarrier (&full_)[Memory::kSlots];
  Mbarrier (&empty_)[Memory::kSlots];
  const BackwardJobs jobs_;
  const int groups_, lane_;
  int next_;                       // this lane's next job
  int complete_ = -1;              // the last section whose items are known to be done
  uint32_t settled_ = 0;           // jobs that all threads are done with
  int section_ = -1, unsaid_ = 0;  // prepared jobs of section_ that are not published yet
};

// ---- the warpgroup of a group ----------------------------------------------------------------------------

template <class C>
class BackwardPassGroup {
 public:
  using Element = typename C::Element;
  using Memory = BackwardPassMemory<C>;

  __device__ BackwardPassGroup(const BackwardParams& params, Memory& memory, int group, int thread)
      : params_(params),
        tile_(memory.tile[group]),
        job_(memory.job[group]),
        full_(memory.full[group]),
        empty_(memory.empty[group]),
        thread_(thread) {}

  __device__ void run() {
    for (uint32_t number = 0;; ++number) {
      const uint32_t slot = number % Memory::kSlots;
      mbarrier_wait(full_[slot], number / Memory::kSlots % 2);
      const BackwardPassJob job = job_[slot];
      if (job.section < 0) break;
      if (job.prepares)
        prepare(job, tile_[slot]);
      else if (job.count > 0)
        finish(job, tile_[slot]);
      mbarrier_arrive(empty_[slot]);
    }
  }

 private:
  static constexpr int kLanes = C::kHeadDim / kVector;  // that share a row, or half a row of dq at a time
  static constexpr int kRowsAtOnce = 128 / kLanes, kRowsOfThread = C::kRows / kRowsAtOnce;
  static constexpr int kWidth = C::kHeadDim / 2;  // of half a row of dq
  static_assert(kWidth / 4 == kLanes && kRowsAtOnce % 8 == 0);

  // Writes stats, with delta = rowsum(do o) - dlse, and zeros to what the kernel adds to. The load warp,
  // which waits for this, has the fence between these stores and TMA.
  __device__ __forceinline__ void prepare(const BackwardPassJob& job, const uint8_t* tile) const {
    const int64_t number = int64_t{job.head} * params_.row_tiles + job.row_tile;
    float lse = -INFINITY;
    if (thread_ < job.count)
      lse = __ldg(params_.lse + int64_t{job.head} * params_.tokens_q + job.first + thread_);
    if (C::kClaimed && thread_ < C::kWarpgroups) params_.turn[number * C::kWarpgroups + thread_] = kUntouched;

    const int lane = thread_ % kLanes, row = thread_ / kLanes;
    const uint8_t* at = tile + lane / 8 * C::kRowPanelBytes + row * kPanelRowBytes + (lane ^ row) % 8 * 16;
    float sum[kRowsOfThread];
#pragma unroll
    for (int i = 0; i < kRowsOfThread; ++i) {
      float a[kVector], b[kVector];
      const uint8_t* from = at + i * kRowsAtOnce * kPanelRowBytes;
      load_vector(reinterpret_cast<const Element*>(from), a);
      load_vector(reinterpret_cast<const Element*>(from + C::kRowBytes), b);
      sum[i] = 0;
#pragma unroll
      for (int j = 0; j < kVector; ++j) sum[i] = fmaf(a[j], b[j], sum[i]);
    }
    // Each lane hands over the sums of rows that it does not keep, until it has one.
    int kept = 0;
#pragma unroll
    for (int half = kRowsOfThread / 2, bit = 1; half > 0; half /= 2, bit *= 2) {
      const bool upper = lane & bit;
      kept += upper ? half : 0;
#pragma unroll
      for (int j = 0; j < half; ++j)
        sum[j] = (upper ? sum[j + half] : sum[j]) +
                 __shfl_xor_sync(0xffffffff, upper ? sum[j] : sum[j + half], bit);
    }
#pragma unroll
    for (int bit = kRowsOfThread; bit < kLanes; bit *= 2) sum[0] += __shfl_xor_sync(0xffffffff, sum[0], bit);

    float* stats = params_.stats + number * 2 * C::kRows;
    if (lane < kRowsOfThread) {
      const int of = row + kept * kRowsAtOnce;
      const int64_t at_row = int64_t{job.head} * params_.tokens_q + job.first + of;
      if (params_.dlse != nullptr && of < job.count && __ldg(params_.lse + at_row) != -INFINITY)
        sum[0] -= __ldg(params_.dlse + at_row);
      stats[C::kRows + stats_index(of)] = of < job.count ? sum[0] : 0;
    }
    if (thread_ < C::kRows)
      stats[stats_index(thread_)] = lse == -INFINITY ? lse : -lse * std::numbers::log2e_v<float>;
    if constexpr (!C::kClaimed) {
      float4* sums = reinterpret_cast<float4*>(sums_of<C>(params_, job));
      for (int i = thread_; i < job.count * (C::kHeadDim / 4); i += 128) sums[i] = make_float4(0, 0, 0, 0);
    }
  }

  // Scales and rounds sums of dq. Loads, exchanges and stores are batched, so that none waits for the one
  // before.
  __device__ __forceinline__ void finish(const BackwardPassJob& job, const uint8_t* tile) const {
    const int place = thread_ % kLanes, row = thread_ / kLanes;
    const float4* from = reinterpret_cast<const float4*>(tile) + row * (C::kHeadDim / 4) + place;
    const GradientView& dq = params_.dq_rows;
    Element* to = static_cast<Element*>(dq.data) + (job.first + row) * dq.token_stride +
                  job.head * dq.head_stride + column_of_place(row, place);
    const int64_t step = kRowsAtOnce * dq.token_stride;
#pragma unroll
    for (int half = 0; half < 2; ++half, to += kWidth) {
      float4 four[kRowsOfThread];
#pragma unroll
      for (int i = 0; i < kRowsOfThread; ++i)
        four[i] = from[half * (kWidth / 4) + i * kRowsAtOnce * (C::kHeadDim / 4)];
#pragma unroll
      for (int i = 0; i < kRowsOfThread; ++i) {
        if (job.untouched) four[i] = make_float4(0, 0, 0, 0);
        four[i] = exchange_dq_chunk(place % 2 != 0, four[i], params_.scale);
      }
#pragma unroll
      for (int i = 0; i < kRowsOfThread; ++i)
        if (row + i * kRowsAtOnce < job.count)
          store_four(to + i * step, four[i].x, four[i].y, four[i].z, four[i].w);
    }
  }

  const BackwardParams& params_;
  uint8_t (&tile_)[Memory::kSlots][Memory::kTileBytes];
  BackwardPassJob (&job_)[Memory::kSlots];
  Mbarrier (&full_)[Memory::kSlots];
  Mbarrier (&empty_)[Memory::kSlots];
  const int thread_;
};

// All passes of pass CTA `cta` of params.pass_ctas. Its shared memory is free afterwards.
template <class C>
__device__ __forceinline__ void do_passes(const BackwardParams& params, BackwardPassMemory<C>& memory,
                                          int cta, int warpgroup, int warp) {
  using Memory = BackwardPassMemory<C>;
  static_assert(sizeof(Memory) <= sizeof(BackwardStreamMemory<C>), "passes use the memory of items");
  if (threadIdx.x == 0) {
    for (int i = 0; i < Memory::kGroups; ++i) {
      for (int j = 0; j < Memory::kSlots; ++j) {
        mbarrier_init(memory.full[i][j], 1);
        mbarrier_init(memory.empty[i][j], 128);  // each thread for itself, which racecheck can follow
      }
    }
    fence_mbarrier_init();
  }
  __syncthreads();
  if (warpgroup > 0)
    BackwardPassGroup<C>(params, memory, warpgroup - 1, threadIdx.x % 128).run();
  else if (warp < Memory::kGroups)
    BackwardPassLoader<C>(params, memory, warp, cta * Memory::kGroups + warp,
                          params.pass_ctas * Memory::kGroups, threadIdx.x % 32)
        .run();
  // TMA writes tiles to the same memory next.
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 0; i < Memory::kGroups; ++i) {
      for (int j = 0; j < Memory::kSlots; ++j) {
        mbarrier_inval(memory.full[i][j]);
        mbarrier_inval(memory.empty[i][j]);
      }
    }
  }
  fence_proxy_async();
}

}  // namespace longspan::sm90
