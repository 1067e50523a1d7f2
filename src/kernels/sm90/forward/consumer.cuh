// A consumer warpgroup of the forward kernel (kernel.cuh has the timeline): scores, softmax, the sum of
// values, and the output.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/sm90/column_bits.cuh"
#include "kernels/sm90/forward/config.cuh"
#include "kernels/sm90/forward/faults.cuh"
#include "kernels/sm90/forward/params.h"
#include "kernels/sm90/forward/softmax.cuh"
#include "kernels/sm90/isa/ptx.cuh"
#include "kernels/sm90/isa/wgmma.cuh"
#include "kernels/sm90/row_of_quad.cuh"

namespace longspan::sm90 {

template <class C>
class Consumer {
 public:
  using Element = typename C::Element;
  using OutputProduct = Wgmma<Element, C::kHeadDimV>;
  static constexpr int kOutputs = C::kHeadDimV / 2;

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
    float o[kOutputs];
    uint32_t p[C::kSteps][4];
    Softmax softmax;

    // The first tile has nothing to overlap with.
    wait_note();
    if (note_.is(kEndOfWork)) return;
    TileNote note = note_;
    {
      float s[C::kColumns / 2];
      uint32_t spans[2];
      prefetch_spans(note, spans);
      wait_q();
      if constexpr (C::kQBuffers == 1 && !C::kLoneQuery) {
        __syncwarp();
        if (lane_ == 0) mbarrier_arrive(barriers_.q_empty[0][warpgroup_]);  // there is no output yet
      }
      if (warpgroup_ == C::kWarpgroups - 1) pass_turn();  // to the first
      wait_turn();
      issue_scores(s);
      pass_turn();
      look_ahead<C::kSecondK>();
      wgmma_wait_group<0>();
      pin_registers(s);
      release_k<C::kSecondK>();
      release_q(note);
      mask(s, note, spans);
      softmax.begin(s, params_.scale_log2);
#pragma unroll 1  // to peel the loop would double its code
      while (!softmax.template exponentiate<Element>(s, p, params_.scale_log2))
        softmax.template raise<1>(s, params_.scale_log2);
    }
    int steps = note.cut.steps(), accumulate = 0;

    while (true) {
      if (note_.is(kNotRead | kEndOfWork | kFirstTile)) {
        if (note_.is(kNotRead)) wait_note();
        if (note_.is(kEndOfWork)) break;
        if (note_.is(kFirstTile)) {  // this tile's first product is the next item's
          ++item_;
          wait_q();
        }
      }
      multiply<0>(note_, softmax, o, p, accumulate, steps);
    }

    mbarrier_wait(barriers_.full[v_.slot], v_.parity);
    issue_outputs(o, p, accumulate, steps);
    wgmma_wait_group<0>();
    pin_registers(o);
    // The previous output has left the buffer.
    if constexpr (C::kQBuffers == 1 && !C::kLoneQuery)
      mbarrier_wait(barriers_.q_full[0][warpgroup_], (item_ + 1) % 2);
    write_outputs(o, softmax, item_);
  }

 private:
  // Takes the smallest width, from number kWidth on, that holds the tile's keys. `note` is a copy, since
  // look_ahead() replaces note_.
  template <int kWidth, class... Rest>
  __device__ __forceinline__ void multiply(TileNote note, Rest&... rest) {
    if constexpr (kWidth + 1 < C::kWidths)
      if (note.cut.steps() > C::width(kWidth) / kStepKeys) return multiply<kWidth + 1>(note, rest...);
    multiply_tile<C::width(kWidth)>(note, rest...);
  }

  // Scores of a tile of kColumns keys, the output product of the tile before, and from the scores the
  // probabilities p. One function for each width: a branch around a wgmma in flight makes ptxas serialize
  // all of them.
  template <int kColumns>
  __device__ __forceinline__ void multiply_tile(TileNote note, Softmax& softmax, float (&o)[kOutputs],
                                                uint32_t (&p)[C::kSteps][4], int& accumulate, int& steps) {
    const bool first = note.is(kFirstTile);
    float s[kColumns / 2];
    uint32_t spans[2];
    wait_turn();
    // What lies between the two products makes the tensor cores wait if it takes longer than the first one.
    issue_scores(s);
    prefetch_spans(note, spans);
    if constexpr (C::kLooksEarly) look_ahead<2>();
    mbarrier_wait(barriers_.full[v_.slot], v_.parity);
    issue_outputs(o, p, accumulate, steps);
    pass_turn();
    if constexpr (!C::kLooksEarly) look_ahead<2>();
    wgmma_wait_group<1>();
    pin_registers(s);
    release_k<2>();
    release_q(note);
    mask(s, note, spans);
    wgmma_wait_group<0>();
    pin_registers(o);
    release_v();
    steps = note.cut.steps();
    accumulate = !first;
    if (first || !softmax.settled) {
      if (first) {
        write_outputs(o, softmax, item_ - 1);
        softmax.begin(s, params_.scale_log2);
      } else {
        raise(s, o, softmax);
      }
    }
#pragma unroll 1
    while (!softmax.template exponentiate<Element>(s, p, params_.scale_log2)) raise(s, o, softmax);
  }

  // Raises the references to the maximum of all scores so far. In an item's first tile o is still the one
  // before's, which is not needed any more.
  template <int kCount>
  __device__ __forceinline__ void raise(const float (&s)[kCount], float (&o)[kOutputs], Softmax& softmax) {
    softmax.template raise<1>(s, params_.scale_log2);
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) o[i] *= softmax.rescale[i / 2 % 2];
  }

  // A tile's products are issued by one warpgroup after the other. Those that begin together share the tensor
  // cores and stay in step, and the tensor cores idle while all compute exponentials.
  static constexpr int kFirstTurn = 1;  // each warpgroup has a named barrier
  __device__ __forceinline__ void wait_turn() const {
    if constexpr (C::kTakesTurns) bar_sync<256>(kFirstTurn + warpgroup_);
  }
  __device__ __forceinline__ void pass_turn() const {
    if constexpr (C::kTakesTurns) bar_arrive<256>(kFirstTurn + (warpgroup_ + 1) % C::kWarpgroups);
  }

  // Reads the note about the next tile if its K has arrived, which one lane sees for all: only products read
  // K. It is the lane that releases the slot.
  template <int kToNextK>
  __device__ __forceinline__ void look_ahead() {
    RingPosition<C::kSlots> next = k_;
    next.template advance<kToNextK>();
    read_note(mbarrier_test_wait(barriers_.full[next.slot], next.parity), next.slot);
  }
  __device__ __forceinline__ void wait_note() {
    mbarrier_wait(barriers_.full[k_.slot], k_.parity);
    read_note(true, k_.slot);
  }
  __device__ __forceinline__ void read_note(bool ready, int slot) {
    int2 note = make_int2(kNotRead, 0);
    if (ready && lane_ == 0) note = *reinterpret_cast<const int2*>(&barriers_.tile[slot]);
    note_ = {TileCut(static_cast<uint32_t>(broadcast(note.x))), broadcast(note.y)};
  }
  static __device__ __forceinline__ int broadcast(int value) {
    return __shfl_sync(0xffffffff, value, 0);
  }

  __device__ __forceinline__ int q_slot() const {
    return static_cast<int>(item_ % C::kQBuffers);
  }
  __device__ __forceinline__ void wait_q() {
    mbarrier_wait(barriers_.q_full[q_slot()][warpgroup_], item_ / C::kQBuffers % 2);
    if constexpr (C::kQueryInRegisters) {
#pragma unroll
      for (int i = 0; i < C::kHeadDim / 16; ++i) ldmatrix_x4(chunk_address(q_slot(), i), query_[i]);
    }
  }

  // The address of lane l's row in the four 8 x 8 matrices at columns 16 * step of the warp's 16 rows of q
  // or o: row l % 16; lanes from 16 on have the second chunk of 8 columns.
  __device__ __forceinline__ uint32_t chunk_address(int slot, int step) const {
    const int row = row_ % 64 - lane_ / 4 + lane_ % 16, chunk = step % 4 * 2 + lane_ / 16;
    return shared_address(memory_.q[slot][warpgroup_]) + step / 4 * C::kQPanelBytes + row * kPanelRowBytes +
           (chunk ^ (row & 7)) * 16;
  }

  __device__ __forceinline__ uint32_t slot_address(int slot) const {
    return shared_address(memory_.kv) + C::slot_offset(slot);
  }

  // In a pair it releases the slot in both CTAs, which load into both.
  __device__ __forceinline__ void release(Mbarrier& empty) {
    if constexpr (C::kPaired) {
      if (lane_ < 2) mbarrier_arrive_at(empty, lane_);
    } else {
      if (lane_ == 0) mbarrier_arrive(empty);
    }
  }

  template <int kToNextK>
  __device__ __forceinline__ void release_k() {
    release(barriers_.empty[k_.slot]);
    k_.template advance<kToNextK>();
  }
  __device__ __forceinline__ void release_v() {
    release(barriers_.empty[v_.slot]);
    v_.template advance<2>();
  }

  // Once the item's last scores are there, the next item's q may replace this one's.
  __device__ __forceinline__ void release_q(const TileNote& note) {
    if constexpr (C::kLoneQuery)
      if (note.is_last() && lane_ == 0) mbarrier_arrive(barriers_.q_empty[0][warpgroup_]);
  }

  // s = q k^T for the first 2 * kCount keys of the tile.
  template <int kCount>
  __device__ __forceinline__ void issue_scores(float (&s)[kCount]) {
    using Product = Wgmma<Element, 2 * kCount>;
    const uint64_t q = descriptor_k_major(shared_address(memory_.q[q_slot()][warpgroup_]));
    const uint64_t k = descriptor_k_major(slot_address(k_.slot));
    pin_registers(s);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < C::kHeadDim / 16; ++step) {
      const uint32_t panel = step / 4, inside = step % 4 * 32;
      const uint64_t k_step = advance(k, panel * C::kKvPanelBytes + inside);
      if constexpr (C::kQueryInRegisters)
        Product::template rs<0>(s, query_[step], k_step, step > 0);
      else
        Product::ss(s, advance(q, panel * C::kQPanelBytes + inside), k_step, step > 0);
    }
    wgmma_commit_group();
  }

  // o (+)= p v at the smallest width, from number kWidth on, that holds `steps` steps of keys.
  template <int kWidth = 0>
  __device__ __forceinline__ void issue_outputs(float (&o)[kOutputs], const uint32_t (&p)[C::kSteps][4],
                                                int accumulate, int steps) {
    if constexpr (kWidth + 1 < C::kWidths)
      if (steps > C::width(kWidth) / kStepKeys) return issue_outputs<kWidth + 1>(o, p, accumulate, steps);
    const uint64_t v = descriptor_n_major(slot_address(v_.slot), C::kKvPanelBytes);
    pin_registers(o);
    wgmma_fence();
#pragma unroll
    for (int step = 0; step < C::width(kWidth) / kStepKeys; ++step)
      OutputProduct::template rs<1>(o, p[step], advance(v, step * kStepKeys * kPanelRowBytes),
                                    step > 0 ? 1 : accumulate);
    wgmma_commit_group();
  }

  // There are fewer than 2^31 spans, see lower_forward().
  __device__ __forceinline__ uint32_t span_of(int32_t layer, int row) const {
    return __ldg(params_.spans +
                 static_cast<uint32_t>(layer * params_.rows_per_tile + (row >> params_.log2_pack)));
  }

  static __device__ __forceinline__ int32_t first_layer_of(const TileNote& note) {
    return C::kLoneQuery ? note.first_layer & ~kLastTile : note.first_layer;
  }

  __device__ __forceinline__ void prefetch_spans(const TileNote& note, uint32_t (&spans)[2]) const {
    if (note.cut.layers() > 0) {
      spans[0] = span_of(first_layer_of(note), row_);
      spans[1] = span_of(first_layer_of(note), row_ + 8);
    }
  }

  template <int kCount>
  __device__ __forceinline__ void mask(float (&s)[kCount], const TileNote& note,
                                       const uint32_t (&spans)[2]) const {
    const uint32_t cut_steps = note.cut.cut_steps();
    if (cut_steps == 0) return;
    const uint32_t quad_column = 2 * (lane_ % 4);
    ColumnBits bits;
    if (note.cut.layers() > 0) {
#pragma unroll
      for (int r = 0; r < 2; ++r) bits.add(r, spans[r] & 0xffff, spans[r] >> 16, quad_column);
      for (int layer = 1; layer < note.cut.layers(); ++layer)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const uint32_t span = span_of(first_layer_of(note) + layer, row_ + 8 * r);
          bits.add(r, span & 0xffff, span >> 16, quad_column);
        }
    }
    bits.apply(s, cut_steps);
  }

  // Hands the buffer with o over to the row warp.
  __device__ __forceinline__ void release_o(int slot) {
    if constexpr (C::kLoneQuery) return;
    __syncwarp();
    if (lane_ == 0) mbarrier_arrive(barriers_.q_empty[slot][warpgroup_]);
  }

  // The lane's first element of a row of o.
  __device__ __forceinline__ Element* raw_row(int token, int head) const {
    return static_cast<Element*>(params_.o_raw) + token * params_.o_token_stride +
           head * params_.o_head_stride + 8 * (lane_ % 4);
  }

  // The epilogue: normalizes o of item number `item` and sends it off, through the shared memory of its q
  // or, in fp32, directly; writes lse. Does not change o: a product is about to write it.
  __device__ __forceinline__ void write_outputs(const float (&o)[kOutputs], const Softmax& softmax,
                                                uint32_t item) {
    const int slot = static_cast<int>(item % C::kQBuffers);
    int2 note = make_int2(0, 0);
    if (lane_ == 0) note = *reinterpret_cast<const int2*>(&barriers_.item[item % C::kItemNotes]);
    const int first_token = broadcast(note.x), head_rows = broadcast(note.y);
    const int first_head = head_rows >> kRowBits, rows = head_rows & ((1 << kRowBits) - 1);
    float sum[2], factor[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) sum[r] = softmax.sum[r] + __shfl_xor_sync(0xffffffff, softmax.sum[r], 1);
#pragma unroll
    for (int r = 0; r < 2; ++r) sum[r] += __shfl_xor_sync(0xffffffff, sum[r], 2);
#pragma unroll
    for (int r = 0; r < 2; ++r) factor[r] = sum[r] == 0.0f ? 0.0f : rcp(sum[r]);

    if constexpr (C::kMerges) {
      write_merged(o, softmax, sum, factor, first_token, first_head, rows, slot);
      return;
    }
    if constexpr (!C::kLoneQuery)
      if (params_.o_f32 == nullptr) {
#pragma unroll
        for (int i = 0; i < C::kHeadDim / 16; ++i) {
          uint32_t packed[4];
#pragma unroll
          for (int j = 0; j < 4; ++j)
            packed[j] =
                cvt_x2<Element>(o[8 * i + 2 * j] * factor[j % 2], o[8 * i + 2 * j + 1] * factor[j % 2]);
          stmatrix_x4(chunk_address(slot, i), packed[0], packed[1], packed[2], packed[3]);
        }
        fence_proxy_async();
      }
    release_o(slot);

#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = row_ + 8 * r;
      const int token = first_token + (row >> params_.log2_pack);
      const int head = first_head + (row & ((1 << params_.log2_pack) - 1));
      if constexpr (C::kLoneQuery)
        if (params_.o_f32 == nullptr) {
          const bool there = row >> params_.log2_pack < rows;
#pragma unroll
          for (int i = 0; i < kOutputs / 16; ++i) {
            uint32_t packed[4];
#pragma unroll
            for (int j = 0; j < 4; ++j)
              packed[j] = cvt_x2<Element>(o[16 * i + 4 * j + 2 * r] * factor[r],
                                          o[16 * i + 4 * j + 2 * r + 1] * factor[r]);
            store_row_of_quad(raw_row(token, head) + 32 * i, packed, lane_, there);
          }
        }
      if (row >> params_.log2_pack >= rows) continue;
      if (lane_ % 4 == 0)
        params_.lse[int64_t{head} * params_.tokens_q + token] =
            softmax.log_sum(r, sum[r], params_.scale, params_.scale_log2);
      if (params_.o_f32 != nullptr) {
        float* out =
            params_.o_f32 + token * params_.o_token_stride + head * params_.o_head_stride + 2 * (lane_ % 4);
#pragma unroll
        for (int i = 0; i < kOutputs / 4; ++i)
          *reinterpret_cast<float2*>(out + 8 * i) =
              make_float2(o[4 * i + 2 * r] * factor[r], o[4 * i + 2 * r + 1] * factor[r]);
      }
    }
  }

  // The epilogue merged with a partial result over other keys (attention/merge.h derives the weights). The
  // partial result may be the output: each element is read and written by one thread, and four lanes read a
  // row's lse before one of them writes it.
  __device__ __forceinline__ void write_merged(const float (&o)[kOutputs], const Softmax& softmax,
                                               const float (&sum)[2], float (&factor)[2], int first_token,
                                               int first_head, int rows, int slot) {
    float keep[2], lse[2];
    int token[2], head[2];
    bool there[2], changes[2];
    const float* part[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = row_ + 8 * r;
      token[r] = first_token + (row >> params_.log2_pack);
      head[r] = first_head + (row & ((1 << params_.log2_pack) - 1));
      there[r] = row >> params_.log2_pack < rows;
      part[r] = params_.part_o + token[r] * params_.part_token_stride + head[r] * params_.part_head_stride +
                2 * (lane_ % 4);
      const float mine = softmax.log_sum(r, sum[r], params_.scale, params_.scale_log2);
      const float other = params_.sinks != nullptr ? params_.sinks[head[r]]
                          : there[r] ? params_.part_lse[int64_t{head[r]} * params_.tokens_q + token[r]]
                                     : -INFINITY;
      const float hi = fmaxf(mine, other), lo = fminf(mine, other);
      const float t = isnan(mine + other) ? mine + other : hi == -INFINITY ? 0.0f : expf(lo - hi);
      const float of_hi = 1.0f / (1.0f + t), of_lo = t * of_hi;
      keep[r] = other >= mine ? of_hi : of_lo;
      factor[r] *= other >= mine ? of_lo : of_hi;
      lse[r] = hi == -INFINITY ? hi : hi + log1pf(t);
      changes[r] =
          there[r] && (sum[r] != 0.0f || params_.part_o != params_.o_f32 || params_.sinks != nullptr);
    }
    constexpr int kGroup = 4;  // pairs of columns whose old values are loaded together
#pragma unroll
    for (int first = 0; first < kOutputs / 4; first += kGroup) {
      float2 value[kGroup][2];
#pragma unroll
      for (int i = 0; i < kGroup; ++i)
#pragma unroll
        for (int r = 0; r < 2; ++r)
          value[i][r] = changes[r] && params_.part_o != nullptr
                            ? __ldcs(reinterpret_cast<const float2*>(part[r] + 8 * (first + i)))
                            : make_float2(0.0f, 0.0f);
#pragma unroll
      for (int i = 0; i < kGroup; ++i)
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int at = 4 * (first + i) + 2 * r;
          value[i][r].x = fmaf(value[i][r].x, keep[r], o[at] * factor[r]);
          value[i][r].y = fmaf(value[i][r].y, keep[r], o[at + 1] * factor[r]);
        }
      if (params_.o_f32 != nullptr) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          if (!changes[r]) continue;
          float* out = params_.o_f32 + token[r] * params_.o_token_stride + head[r] * params_.o_head_stride +
                       2 * (lane_ % 4);
#pragma unroll
          for (int i = 0; i < kGroup; ++i) *reinterpret_cast<float2*>(out + 8 * (first + i)) = value[i][r];
        }
      } else if constexpr (C::kLoneQuery) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          uint32_t packed[kGroup];
#pragma unroll
          for (int i = 0; i < kGroup; ++i) packed[i] = cvt_x2<Element>(value[i][r].x, value[i][r].y);
          store_row_of_quad(raw_row(token[r], head[r]) + 8 * first, packed, lane_, there[r]);
        }
      } else {
#pragma unroll
        for (int i = 0; i < kGroup; i += 2)
          stmatrix_x4(chunk_address(slot, (first + i) / 2), cvt_x2<Element>(value[i][0].x, value[i][0].y),
                      cvt_x2<Element>(value[i][1].x, value[i][1].y),
                      cvt_x2<Element>(value[i + 1][0].x, value[i + 1][0].y),
                      cvt_x2<Element>(value[i + 1][1].x, value[i + 1][1].y));
      }
    }
    if (!C::kLoneQuery && params_.o_f32 == nullptr) fence_proxy_async();
    release_o(slot);
#pragma unroll
    for (int r = 0; r < 2; ++r)
      if (changes[r] && lane_ % 4 == 0) params_.lse[int64_t{head[r]} * params_.tokens_q + token[r]] = lse[r];
  }

  const ForwardParams& params_;
  StreamSharedMemory<C>& memory_;
  StreamBarriers<C>& barriers_;
  const int warpgroup_, lane_, row_;
  uint32_t query_[C::kHeadDim / 16][4];  // operand a of the first product, if kQueryInRegisters
  uint32_t item_ = 0;                    // whose q is multiplied
  RingPosition<C::kSlots> k_, v_{C::kFirstV, 0};
  TileNote note_{TileCut(kNotRead), 0};  // of the next tile, once it is read
};

}  // namespace longspan::sm90
