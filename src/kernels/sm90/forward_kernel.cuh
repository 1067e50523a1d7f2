// The forward kernel: o and lse of one attention, any mask, from a tile map.
//
// A block is persistent and holds 1 or 2 streams. A stream takes work items (row tile, heads) from a counter,
// the heaviest first, and has a loading warp, a storing warp and its consumer warpgroups of 64 rows each:
//
//   load warp    Q0 K0 | K1 V0 | K2 V1 | Q1 K0' V2 | K1' V0' | ...          runs ahead as far as the rings
//   allow warpgroup 0  [S0] exp 0 [S1 O+=P0V0] exp 1 [S2 O+=P1V1] exp 2 [S0' O+=P2V2] O out, exp 0' [S1'
//   O+=P0'V0'] ... warpgroup 1     [S0] exp 0 [S1 O+=P0V0] exp 1 [S2 O+=P1V1] exp 2 ...        finds the gaps
//   by itself store warp                                                            O -> global
//
// [...] runs on the tensor cores. The loop runs over tiles, not over items: the first product of the next
// item is issued with the last one of the current item, so a short item costs no bubble. While one warpgroup
// computes exponentials the other multiplies; no barrier between them is needed for that, and handing the
// tensor cores over by named barriers was measured to be slower (docs/kernels/sm90-forward.md).
#pragma once

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "kernels/sm90/forward_params.h"
#include "kernels/sm90/ptx.h"
#include "kernels/sm90/wgmma.h"

namespace longspan::sm90 {

// The shape of one instance of the kernel.
template <class ElementT, int kHeadDimT, int kColumnsT, int kStreamsT, int kKStagesT, int kVStagesT,
          bool kQueryInRegistersT>
struct ForwardConfig {
  using Element = ElementT;
  static constexpr int kHeadDim = kHeadDimT;  // 64 or 128
  static constexpr int kColumns = kColumnsT;  // keys of a tile
  static constexpr int kStreams = kStreamsT;  // independent streams of work items in a block
  static constexpr int kKStages = kKStagesT, kVStages = kVStagesT;  // of the rings
  // Operand a of the first product comes from registers, where they suffice: it spares the shared memory's
  // reads.
  static constexpr bool kQueryInRegisters = kQueryInRegistersT;
  static constexpr int kQBuffers = 2;

  static constexpr int kConsumers = 2;                       // warpgroups
  static constexpr int kWarpgroups = kConsumers / kStreams;  // of a stream
  static constexpr int kThreads = 128 * (1 + kConsumers);
  static constexpr int kPanels = kHeadDim / kPanelColumns;
  static constexpr uint32_t kQPanelBytes = 64 * kPanelRowBytes;  // of one warpgroup
  static constexpr uint32_t kQBytes = kQPanelBytes * kPanels;
  static constexpr uint32_t kKvPanelBytes = kColumns * kPanelRowBytes;
  static constexpr uint32_t kKvBytes = kKvPanelBytes * kPanels;
  static constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;  // a thread

  static_assert(kHeadDim % kPanelColumns == 0, "head_dim must be a multiple of 64");
  static_assert(kColumns % 16 == 0 && kColumns <= 256, "a tile's keys are a multiple of 16, at most 256");
  static_assert(kStreams == 1 || kStreams == 2, "two warpgroups make one stream or two");
};

// What the load warp tells the consumers about a tile of keys.
struct TileNote {
  int32_t code;   // as DeviceRun::code; 0: the first `limit` keys are visible to all rows
  int32_t flags;  // kFirstTile, kEndOfWork, limit << 8
};
enum TileFlags : int32_t { kFirstTile = 1, kEndOfWork = 2 };

struct ItemNote {
  int32_t token, head;  // the first of each
  int32_t end;          // not an item: there is no more work
  int32_t unused;
};

template <class C>
struct StreamSharedMemory {
  alignas(1024) uint8_t q[C::kQBuffers][C::kWarpgroups][C::kQBytes];  // o leaves through the buffer of its q
  alignas(1024) uint8_t k[C::kKStages][C::kKvBytes];
  alignas(1024) uint8_t v[C::kVStages][C::kKvBytes];
};

template <class C>
struct StreamBarriers {
  Mbarrier q_full[C::kQBuffers], q_empty[C::kQBuffers], o_full[C::kQBuffers];
  Mbarrier k_full[C::kKStages], k_empty[C::kKStages], v_full[C::kVStages], v_empty[C::kVStages];
  TileNote tile[C::kKStages];
  ItemNote item[C::kQBuffers];
};

template <class C>
struct SharedMemoryPlan {
  StreamSharedMemory<C> stream[C::kStreams];
  StreamBarriers<C> barriers[C::kStreams];
};

// A position in a ring of kSize slots, with the parity of the passes over it.
template <int kSize>
struct RingPosition {
  int slot = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance() {
    if (++slot == kSize) {
      slot = 0;
      parity ^= 1;
    }
  }
};

// ---- the load warp ---------------------------------------------------------------------------------------

struct WorkItem {
  WorkRow row;
  int32_t unit = 0;
  bool valid = false;
};

__device__ __forceinline__ WorkItem fetch_work_item(const ForwardParams& params, int index) {
  WorkItem item;
  item.valid = index < params.items;
  if (!item.valid) return item;
  const int per_section = params.section_units * params.row_tiles;
  const int section = index / per_section;
  const int inside = index - section * per_section;
  const int first_unit = section * params.section_units;
  const int units = min(params.section_units, params.units - first_unit);
  const int position = inside / units;
  item.unit = first_unit + (inside - position * units);
  const int64_t base =
      params.per_head_masks ? int64_t{item.unit / params.units_per_kv} * params.row_tiles : 0;
  const int4 raw = __ldg(reinterpret_cast<const int4*>(params.work + base + position));
  item.row = WorkRow{raw.x, static_cast<uint32_t>(raw.y), raw.z, 0};
  return item;
}

// Runs `first` .. `first + 31` of an item, one a lane.
__device__ __forceinline__ DeviceRun fetch_run(const ForwardParams& params, const WorkItem& item, int first,
                                               int lane) {
  DeviceRun run;
  if (item.valid && first + lane < item.row.runs) {
    const int2 raw = __ldg(reinterpret_cast<const int2*>(params.runs + item.row.first_run +
                                                         static_cast<uint32_t>(first + lane)));
    run = DeviceRun{raw.x, raw.y};
  }
  return run;
}

template <class C>
class Loader {
 public:
  __device__ Loader(const ForwardParams& params, StreamSharedMemory<C>& memory, StreamBarriers<C>& barriers,
                    int lane)
      : params_(params), memory_(memory), barriers_(barriers), lane_(lane) {}

  // The item, its first runs, and the index of the item after the next are fetched one item ahead each, so
  // that no item begins with a chain of loads.
  __device__ void run(int worker, int workers) {
    WorkItem item = fetch_work_item(params_, worker);
    DeviceRun runs = fetch_run(params_, item, 0, lane_);
    WorkItem next = fetch_work_item(params_, take(workers));
    int after = take(workers);
    while (item.valid) {
      const DeviceRun next_runs = fetch_run(params_, next, 0, lane_);
      const WorkItem after_next = fetch_work_item(params_, after);
      after = take(workers);
      load_item(item, runs);
      item = next;
      runs = next_runs;
      next = after_next;
    }
    finish(workers);
  }

 private:
  __device__ int take(int workers) {
    int index = 0;
    if (lane_ == 0) index = atomicAdd(params_.counters, 1) + workers;
    return __shfl_sync(0xffffffff, index, 0);
  }

  __device__ void load_item(const WorkItem& item, DeviceRun batch) {
    kv_head_ = item.unit / params_.units_per_kv;
    load_q(item.row.row_tile * params_.rows_per_tile, item.unit << params_.log2_pack);
    first_tile_ = kFirstTile;
    if (item.row.runs == 0) load_tile(0, 0, 0);  // nothing is visible: one tile, wholly masked
    for (int done = 0; done < item.row.runs; done += 32) {
      if (done > 0) batch = fetch_run(params_, item, done, lane_);
      const int count = min(32, item.row.runs - done);
      for (int i = 0; i < count; ++i) {
        const int column = __shfl_sync(0xffffffff, batch.column, i);
        const int code = __shfl_sync(0xffffffff, batch.code, i);
        if (code < 0) {
          load_tile(column, code, 0);
        } else {
          for (int t = 0; t < code; ++t) {
            const int begin = column + t * C::kColumns;
            const int limit = params_.tokens_kv - begin;  // keys past the last are not visible
            load_tile(begin, limit < C::kColumns ? 0 : 1, limit);
          }
        }
      }
    }
  }

  __device__ void load_q(int token, int head) {
    Mbarrier& full = barriers_.q_full[q_.slot];
    mbarrier_wait(barriers_.q_empty[q_.slot], q_.parity ^ 1);
    if (lane_ == 0) {
      barriers_.item[q_.slot] = ItemNote{token, head, 0, 0};
      mbarrier_arrive_expect_tx(full, C::kWarpgroups * C::kQBytes);
      for (int w = 0; w < C::kWarpgroups; ++w)
        cp_async_bulk_tensor_load(shared_address(memory_.q[q_.slot][w]), params_.q, full, 0, head,
                                  token + w * (64 >> params_.log2_pack), 0, CachePolicy::kEvictFirst);
    }
    __syncwarp();
    q_.advance();
  }

  // K of this tile, then V of the one before it: the order in which the consumers need them.
  __device__ void load_tile(int column, int code, int limit) {
    mbarrier_wait(barriers_.k_empty[k_.slot], k_.parity ^ 1);
    if (lane_ == 0) {
      barriers_.tile[k_.slot] = TileNote{code, first_tile_ | (code == 0 ? limit << 8 : 0)};
      mbarrier_arrive_expect_tx(barriers_.k_full[k_.slot], C::kKvBytes);
      cp_async_bulk_tensor_load(shared_address(memory_.k[k_.slot]), params_.k, barriers_.k_full[k_.slot], 0,
                                column, 0, kv_head_, CachePolicy::kEvictLast);
    }
    __syncwarp();
    k_.advance();
    first_tile_ = 0;
    load_pending_v();
    pending_column_ = column;
    pending_head_ = kv_head_;
  }

  __device__ void load_pending_v() {
    if (pending_column_ < 0) return;
    mbarrier_wait(barriers_.v_empty[v_.slot], v_.parity ^ 1);
    if (lane_ == 0) {
      mbarrier_arrive_expect_tx(barriers_.v_full[v_.slot], C::kKvBytes);
      cp_async_bulk_tensor_load(shared_address(memory_.v[v_.slot]), params_.v, barriers_.v_full[v_.slot], 0,
                                pending_column_, 0, pending_head_, CachePolicy::kEvictLast);
    }
    __syncwarp();
    v_.advance();
  }

  // Tells the other warps that there is no more work; the last worker of the grid leaves the counters at
  // zero.
  __device__ void finish(int workers) {
    load_pending_v();
    mbarrier_wait(barriers_.k_empty[k_.slot], k_.parity ^ 1);
    mbarrier_wait(barriers_.q_empty[q_.slot], q_.parity ^ 1);
    if (lane_ == 0) {
      barriers_.tile[k_.slot] = TileNote{0, kEndOfWork};
      mbarrier_arrive(barriers_.k_full[k_.slot]);
      barriers_.item[q_.slot] = ItemNote{0, 0, 1, 0};
      mbarrier_arrive(barriers_.q_full[q_.slot]);
      __threadfence();
      if (atomicAdd(params_.counters + 1, 1) == workers - 1) {
        params_.counters[0] = 0;
        params_.counters[1] = 0;
      }
    }
  }

  const ForwardParams& params_;
  StreamSharedMemory<C>& memory_;
  StreamBarriers<C>& barriers_;
  int lane_;
  int kv_head_ = 0;
  int first_tile_ = 0;
  int pending_column_ = -1, pending_head_ = 0;
  RingPosition<C::kQBuffers> q_;
  RingPosition<C::kKStages> k_;
  RingPosition<C::kVStages> v_;
};

// ---- the store warp --------------------------------------------------------------------------------------

template <class C>
__device__ void store_outputs(const ForwardParams& params, StreamSharedMemory<C>& memory,
                              StreamBarriers<C>& barriers, int lane) {
  for (RingPosition<C::kQBuffers> q;; q.advance()) {
    mbarrier_wait(barriers.q_full[q.slot], q.parity);
    const ItemNote item = barriers.item[q.slot];
    if (item.end) break;
    mbarrier_wait(barriers.o_full[q.slot], q.parity);
    if (lane == 0) {
      if (params.o_f32 == nullptr) {
        for (int w = 0; w < C::kWarpgroups; ++w)
          cp_async_bulk_tensor_store(params.o, shared_address(memory.q[q.slot][w]), 0, item.head,
                                     item.token + w * (64 >> params.log2_pack), 0);
        cp_async_bulk_commit_group();
        cp_async_bulk_wait_group_read();
      }
      mbarrier_arrive(barriers.q_empty[q.slot]);
    }
    __syncwarp();
  }
  if (lane == 0) cp_async_bulk_wait_group();
}

// ---- the consumers ---------------------------------------------------------------------------------------

// The softmax of the two rows that a thread shares with the three other threads of its quad. Sums are kept
// per thread. Probabilities are relative to a reference, the row's maximum when it was last looked at: as
// long as no thread's sum over a tile exceeds kLimit, no probability does, and neither a maximum nor a
// rescaling is needed.
struct Softmax {
  static constexpr float kLimit = 1024.0f;

  float maximum[2];       // the reference, in units of scores
  float minus_scaled[2];  // -maximum * scale_log2; 0 while the row has seen no key
  float sum[2];
  float rescale[2];  // by which the reference changed when it was last raised
  bool settled;      // all rows of the warp have seen a key

  __device__ __forceinline__ void reset() {
#pragma unroll
    for (int r = 0; r < 2; ++r) maximum[r] = -INFINITY, minus_scaled[r] = 0.0f, sum[r] = 0.0f;
    settled = false;
  }

  // Raises the references to the maxima of all scores so far.
  template <int kCount>
  __device__ __forceinline__ void raise(const float (&s)[kCount], float scale_log2) {
    float top[2][2];
#pragma unroll
    for (int r = 0; r < 2; ++r)
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        top[r][c] = s[2 * r + c];
#pragma unroll
        for (int i = 1; i < kCount / 4; ++i) top[r][c] = fmaxf(top[r][c], s[4 * i + 2 * r + c]);
      }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float highest = fmaxf(top[r][0], top[r][1]);
      highest = fmaxf(highest, __shfl_xor_sync(0xffffffff, highest, 1));
      highest = fmaxf(highest, __shfl_xor_sync(0xffffffff, highest, 2));
      highest = fmaxf(highest, maximum[r]);
      minus_scaled[r] = highest == -INFINITY ? 0.0f : -highest * scale_log2;
      rescale[r] = ex2(fmaf(maximum[r], scale_log2, minus_scaled[r]));
      sum[r] *= rescale[r];
      maximum[r] = highest;
    }
    settled = __all_sync(0xffffffff, maximum[0] > -INFINITY && maximum[1] > -INFINITY);
  }

  // Scores to probabilities, as operand a of the second product. False if the references are too low for
  // that.
  template <class Element, int kCount>
  __device__ __forceinline__ bool exponentiate(const float (&s)[kCount], uint32_t (&p)[kCount / 8][4],
                                               float scale_log2) {
    float part[2][2] = {{0.0f, 0.0f}, {0.0f, 0.0f}};
#pragma unroll
    for (int step = 0; step < kCount / 8; ++step)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = i % 2;
        const float low = ex2(fmaf(s[8 * step + 2 * i], scale_log2, minus_scaled[r]));
        const float high = ex2(fmaf(s[8 * step + 2 * i + 1], scale_log2, minus_scaled[r]));
        part[r][0] += low;
        part[r][1] += high;
        p[step][i] = cvt_x2<Element>(low, high);
      }
    const float tile[2] = {part[0][0] + part[0][1], part[1][0] + part[1][1]};
    if (__any_sync(0xffffffff, tile[0] > kLimit || tile[1] > kLimit)) return false;
    sum[0] += tile[0];
    sum[1] += tile[1];
    return true;
  }
};

// Which of a thread's columns two rows see: bit i stands for column 8 i + 2 (lane % 4) + parity.
struct ColumnBits {
  uint32_t row[2][2] = {{0, 0}, {0, 0}};  // [row][parity]

  __device__ __forceinline__ void add(int r, uint32_t begin, uint32_t end, uint32_t quad_column) {
#pragma unroll
    for (uint32_t parity = 0; parity < 2; ++parity) {
      const uint32_t shift = 7 - quad_column - parity;
      const uint32_t below_end = (1u << ((end + shift) >> 3)) - 1,
                     below_begin = (1u << ((begin + shift) >> 3)) - 1;
      row[r][parity] |= below_end & ~below_begin;
    }
  }

  template <int kCount>
  __device__ __forceinline__ void apply(float (&s)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount / 4; ++i)
#pragma unroll
      for (int r = 0; r < 2; ++r)
#pragma unroll
        for (int c = 0; c < 2; ++c)
          s[4 * i + 2 * r + c] = row[r][c] >> i & 1 ? s[4 * i + 2 * r + c] : -INFINITY;
  }
};

template <class C>
class Consumer {
 public:
  using Element = typename C::Element;
  using ScoreProduct = Wgmma<Element, C::kColumns>;
  using OutputProduct = Wgmma<Element, C::kHeadDim>;
  static constexpr int kScores = C::kColumns / 2, kOutputs = C::kHeadDim / 2;

  // `warpgroup` counts within the stream.
  __device__ Consumer(const ForwardParams& params, StreamSharedMemory<C>& memory, StreamBarriers<C>& barriers,
                      int warpgroup, int thread)
      : params_(params),
        memory_(memory),
        barriers_(barriers),
        warpgroup_(warpgroup),
        lane_(thread % 32),
        row_(warpgroup * 64 + thread / 32 * 16 + lane_ / 4) {}

  __device__ __forceinline__ void run() {
    const float scale_log2 = params_.scale_log2;
    float s[kScores], o[kOutputs];
    uint32_t p[C::kColumns / 16][4];
    Softmax softmax;
    softmax.reset();

    // The first tile has nothing to overlap with.
    TileNote note = wait_k(false);
    if (note.flags & kEndOfWork) return;
    uint32_t spans[2];
    prefetch_spans(note, spans);
    wait_q();
    issue_scores(s);
    wgmma_wait_group<0>();
    pin_registers(s);
    release_k();
    if (note.code <= 0) mask(s, note, spans);
    softmax.raise(s, scale_log2);
    softmax.exponentiate<Element>(s, p, scale_log2);
    int accumulate = 0;
    bool k_ready = false;

    while (true) {
      note = wait_k(k_ready);
      if (note.flags & kEndOfWork) break;
      const bool first = note.flags & kFirstTile;
      if (first) {  // the products of this tile are of the next item already
        q_.advance();
        wait_q();
      }
      const bool v_ready = mbarrier_try_wait(barriers_.v_full[v_.slot], v_.parity);
      issue_scores(s);
      if (!v_ready) mbarrier_wait(barriers_.v_full[v_.slot], v_.parity);
      issue_outputs(o, p, accumulate);
      prefetch_spans(note, spans);
      wgmma_wait_group<1>();
      pin_registers(s);
      release_k();
      if (note.code <= 0) mask(s, note, spans);
      k_ready = mbarrier_try_wait(barriers_.k_full[k_.slot], k_.parity);
      wgmma_wait_group<0>();
      pin_registers(o);
      release_v();
      if (first) {
        write_outputs(o, softmax.maximum, softmax.sum, q_.slot ^ 1);
        softmax.reset();
      }
      accumulate = !first;
      bool exact = !softmax.settled;
      while (true) {
        if (exact) {
          softmax.raise(s, scale_log2);
          if (accumulate) {
#pragma unroll
            for (int i = 0; i < kOutputs; ++i) o[i] *= softmax.rescale[i / 2 % 2];
          }
        }
        if (softmax.exponentiate<Element>(s, p, scale_log2) || exact) break;
        exact = true;
      }
    }

    mbarrier_wait(barriers_.v_full[v_.slot], v_.parity);
    issue_outputs(o, p, accumulate);
    wgmma_wait_group<0>();
    pin_registers(o);
    write_outputs(o, softmax.maximum, softmax.sum, q_.slot);
  }

 private:
  // `ready`: already seen to be there.
  __device__ __forceinline__ TileNote wait_k(bool ready) {
    if (!ready) mbarrier_wait(barriers_.k_full[k_.slot], k_.parity);
    return barriers_.tile[k_.slot];
  }

  __device__ __forceinline__ void wait_q() {
    mbarrier_wait(barriers_.q_full[q_.slot], q_.parity);
    if constexpr (C::kQueryInRegisters) {
#pragma unroll
      for (int i = 0; i < C::kHeadDim / 16; ++i) ldmatrix_x4(chunk_address(q_.slot, i), query_[i]);
    }
  }

  // Where lane l finds its row of the four 8 x 8 matrices that are columns 16 step .. of the warp's 16 rows
  // of q or o: row l % 16, and lanes from 16 on the second chunk of 8 columns.
  __device__ __forceinline__ uint32_t chunk_address(int slot, int step) const {
    const int row = row_ % 64 - lane_ / 4 + lane_ % 16, chunk = step % 4 * 2 + lane_ / 16;
    return shared_address(memory_.q[slot][warpgroup_]) + step / 4 * C::kQPanelBytes + row * kPanelRowBytes +
           (chunk ^ (row & 7)) * 16;
  }

  __device__ __forceinline__ void release_k() {
    if (lane_ == 0) mbarrier_arrive(barriers_.k_empty[k_.slot]);
    k_.advance();
  }
  __device__ __forceinline__ void release_v() {
    if (lane_ == 0) mbarrier_arrive(barriers_.v_empty[v_.slot]);
    v_.advance();
  }

  // s = q k^T
  __device__ __forceinline__ void issue_scores(float (&s)[kScores]) {
    const uint64_t q = descriptor_k_major(shared_address(memory_.q[q_.slot][warpgroup_]));
    const uint64_t k = descriptor_k_major(shared_address(memory_.k[k_.slot]));
    pin_registers(s);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < C::kHeadDim / 16; ++step) {
      const uint32_t panel = step / 4, inside = step % 4 * 32;
      const uint64_t k_step = advance(k, panel * C::kKvPanelBytes + inside);
      if constexpr (C::kQueryInRegisters)
        ScoreProduct::template rs<0>(s, query_[step], k_step, step > 0);
      else
        ScoreProduct::ss(s, advance(q, panel * C::kQPanelBytes + inside), k_step, step > 0);
    }
    wgmma_commit_group();
  }

  // o (+)= p v
  __device__ __forceinline__ void issue_outputs(float (&o)[kOutputs],
                                                const uint32_t (&p)[C::kColumns / 16][4], int accumulate) {
    const uint64_t v = descriptor_n_major(shared_address(memory_.v[v_.slot]), C::kKvPanelBytes);
    pin_registers(o);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < C::kColumns / 16; ++step)
      OutputProduct::template rs<1>(o, p[step], advance(v, step * 16 * kPanelRowBytes),
                                    step > 0 ? 1 : accumulate);
    wgmma_commit_group();
  }

  __device__ __forceinline__ const uint32_t* spans_of(int32_t layer, int row) const {
    return params_.spans + int64_t{layer} * params_.rows_per_tile + (row >> params_.log2_pack);
  }

  __device__ __forceinline__ void prefetch_spans(const TileNote& note, uint32_t (&spans)[2]) const {
    if (note.code < 0 && !(~note.code & kManyLayers)) {
      spans[0] = __ldg(spans_of(~note.code, row_));
      spans[1] = __ldg(spans_of(~note.code, row_ + 8));
    }
  }

  __device__ __forceinline__ void mask(float (&s)[kScores], const TileNote& note,
                                       const uint32_t (&spans)[2]) const {
    const uint32_t quad_column = 2 * (lane_ % 4);
    ColumnBits bits;
    if (note.code == 0) {
      for (int r = 0; r < 2; ++r) bits.add(r, 0, note.flags >> 8, quad_column);
    } else if (!(~note.code & kManyLayers)) {
      for (int r = 0; r < 2; ++r) bits.add(r, spans[r] & 0xffff, spans[r] >> 16, quad_column);
    } else {
      const DevicePartial partial = params_.partials[~note.code & ~kManyLayers];
      for (int layer = 0; layer < partial.layers; ++layer)
        for (int r = 0; r < 2; ++r) {
          const uint32_t span = __ldg(spans_of(partial.first + layer, row_ + 8 * r));
          bits.add(r, span & 0xffff, span >> 16, quad_column);
        }
    }
    bits.apply(s);
  }

  // Normalises o and sends it off, through the shared memory of its q or, in fp32, directly; writes lse.
  __device__ __forceinline__ void write_outputs(float (&o)[kOutputs], const float (&maximum)[2],
                                                const float (&thread_sum)[2], int slot) {
    const ItemNote item = barriers_.item[slot];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float sum = thread_sum[r];
      sum += __shfl_xor_sync(0xffffffff, sum, 1);
      sum += __shfl_xor_sync(0xffffffff, sum, 2);
      const float factor = sum == 0.0f ? 0.0f : __fdividef(1.0f, sum);
#pragma unroll
      for (int i = 0; i < kOutputs / 4; ++i) {
        o[4 * i + 2 * r] *= factor;
        o[4 * i + 2 * r + 1] *= factor;
      }
      const int row = row_ + 8 * r;
      const int token = item.token + (row >> params_.log2_pack);
      const int head = item.head + (row & ((1 << params_.log2_pack) - 1));
      if (token < params_.tokens_q) {
        if (lane_ % 4 == 0)
          params_.lse[int64_t{head} * params_.tokens_q + token] =
              sum == 0.0f ? -INFINITY : fmaf(maximum[r], params_.scale, __logf(sum));
        if (params_.o_f32 != nullptr) {
          float* out =
              params_.o_f32 + token * params_.o_token_stride + head * params_.o_head_stride + 2 * (lane_ % 4);
#pragma unroll
          for (int i = 0; i < kOutputs / 4; ++i)
            *reinterpret_cast<float2*>(out + 8 * i) = make_float2(o[4 * i + 2 * r], o[4 * i + 2 * r + 1]);
        }
      }
    }
    if (params_.o_f32 == nullptr) {
#pragma unroll
      for (int i = 0; i < C::kHeadDim / 16; ++i)
        stmatrix_x4(chunk_address(slot, i), cvt_x2<Element>(o[8 * i], o[8 * i + 1]),
                    cvt_x2<Element>(o[8 * i + 2], o[8 * i + 3]), cvt_x2<Element>(o[8 * i + 4], o[8 * i + 5]),
                    cvt_x2<Element>(o[8 * i + 6], o[8 * i + 7]));
      fence_proxy_async();
    }
    __syncwarp();
    if (lane_ == 0) mbarrier_arrive(barriers_.o_full[slot]);
  }

  const ForwardParams& params_;
  StreamSharedMemory<C>& memory_;
  StreamBarriers<C>& barriers_;
  const int warpgroup_, lane_, row_;
  uint32_t query_[C::kHeadDim / 16][4];  // operand a of the first product, if kQueryInRegisters
  RingPosition<C::kQBuffers> q_;
  RingPosition<C::kKStages> k_;
  RingPosition<C::kVStages> v_;
};

// ---- the kernel ------------------------------------------------------------------------------------------

template <class C>
__device__ void init_barriers(StreamBarriers<C>& b) {
  constexpr int kConsumerWarps = 4 * C::kWarpgroups;
  for (int i = 0; i < C::kQBuffers; ++i) {
    mbarrier_init(b.q_full[i], 1);
    mbarrier_init(b.q_empty[i], 1);
    mbarrier_init(b.o_full[i], kConsumerWarps);
  }
  for (int i = 0; i < C::kVStages; ++i) {
    mbarrier_init(b.v_full[i], 1);
    mbarrier_init(b.v_empty[i], kConsumerWarps);
  }
  for (int i = 0; i < C::kKStages; ++i) {
    mbarrier_init(b.k_full[i], 1);
    mbarrier_init(b.k_empty[i], kConsumerWarps);
  }
}

template <class C>
__global__ void __launch_bounds__(C::kThreads, 1) sm90_forward(const __grid_constant__ ForwardParams params) {
  extern __shared__ __align__(1024) uint8_t raw[];
  auto& shared = *reinterpret_cast<SharedMemoryPlan<C>*>(raw);
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / 128, 0);
  const int warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);
  const int lane = threadIdx.x % 32;

  if (threadIdx.x == 0) {
    prefetch_tensormap(params.q);
    prefetch_tensormap(params.k);
    prefetch_tensormap(params.v);
    if (params.o_f32 == nullptr) prefetch_tensormap(params.o);
    for (int i = 0; i < C::kStreams; ++i) init_barriers<C>(shared.barriers[i]);
    fence_mbarrier_init();
  }
  __syncthreads();

  if (warpgroup == 0) {
    setmaxnreg_dec<C::kProducerRegisters>();
    const int stream = warp / 2;
    if (stream < C::kStreams) {
      if (warp % 2 == 0)
        Loader<C>(params, shared.stream[stream], shared.barriers[stream], lane)
            .run(blockIdx.x * C::kStreams + stream, gridDim.x * C::kStreams);
      else
        store_outputs<C>(params, shared.stream[stream], shared.barriers[stream], lane);
    }
  } else {
    setmaxnreg_inc<C::kConsumerRegisters>();
    const int stream = (warpgroup - 1) / C::kWarpgroups;
    Consumer<C>(params, shared.stream[stream], shared.barriers[stream], (warpgroup - 1) % C::kWarpgroups,
                threadIdx.x % 128)
        .run();
  }
}

}  // namespace longspan::sm90
