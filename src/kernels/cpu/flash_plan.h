// The plan of cpu-flash: the division of a problem into tiles, and the two passes over them.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "attention/kernel.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/panel.h"
#include "mask/lowering/tile_map.h"

namespace longspan {

// A tile is `tokens` query tokens of `heads` query heads of one group, against kKeys keys. Its rows are
// lanes: lane = token * heads + head, divided into panels that fit the L1 cache.
struct FlashTiling {
  static constexpr int32_t kKeys = 128;
  static constexpr int32_t kKeyStep = 16;  // keys per product are a multiple of this

  int32_t heads = 0;   // query heads per tile: a divisor of the group size
  int32_t tokens = 0;  // per tile
  int32_t panel = 0;   // lanes per panel
  int32_t panels = 0;  // per tile
  int32_t lanes() const { return panel * panels; }

  static FlashTiling of(const Problem& problem, GemmLibrary library);
};

class FlashPlan final : public Plan {
 public:
  FlashPlan(const Problem& problem, GemmLibrary library);

  size_t workspace_bytes(Direction direction) const override;
  size_t plan_bytes() const override;
  void forward(const ForwardArgs& args, Stream stream) override;
  void backward(const BackwardArgs& args, Stream stream) override;

 private:
  // Carves parts from a block of memory; without memory it only counts the bytes.
  struct Carver {
    char* base = nullptr;
    size_t used = 0;
    template <class T = float>
    T* take(int64_t count) {
      T* piece = base == nullptr ? nullptr : reinterpret_cast<T*>(base + used);
      used += (static_cast<size_t>(count) * sizeof(T) + 255) / 256 * 256;
      return piece;
    }
  };

  // The keys of a tile that a panel has to process, in whole steps.
  struct KeyRange {
    int32_t begin = 0;  // first key
    int32_t keys = 0;   // keys to compute; a multiple of kKeyStep
    int32_t valid = 0;  // existing keys among them
  };

  // The scratch of one thread for one tile. [panels, head_dim, panel] where transposed, [lanes, head_dim]
  // otherwise; head_dim_v for out_t and dout. `rows` is room for rows of any operand.
  struct Scratch {
    float *rows, *q_t, *out_t;
    float *dout, *dout_t, *dprobs;  // backward only
    float* scores;                  // [keys, panel], as is dprobs
    float* derivatives;             // backward with softcap only; likewise
    float* slope;                   // [lanes], with ALiBi only, as is position
    int32_t* position;
    float *maximum, *sum;  // [lanes]; lse2 and delta in the backward pass
    int32_t *begin, *end;  // [layers, lanes]
    KeyRange* ranges;      // [panels]
  };
  // Keys and values of one KV head, in f32, tile by tile: [kv_tiles, kKeys, head_dim], zeros past the last
  // key; [kv_tiles, head_dim, kKeys] where transposed. head_dim_v for v and dv.
  struct PackedHead {
    float *k, *v;    // v: backward pass only
    float* v_t;      // forward only
    float* k_t;      // backward only
    float *dk, *dv;  // backward only: the gradient sums
  };
  // The next row tile to add to a key tile's dk and dv. Additions happen in descending order of row tiles,
  // whichever thread computes them, so the sums are deterministic.
  struct Turn {
    std::atomic<int32_t> row_tile{-1};
    int32_t offset = 0;  // of row_tile within its run
    int64_t run = 0;
  };

  struct Workspace {
    std::vector<PackedHead> heads;  // KV heads of a round
    std::vector<Scratch> threads;
    Turn* turns = nullptr;  // [heads, kv_tiles]; backward only
    size_t bytes = 0;
  };

  Workspace carve(Direction direction, void* memory) const;
  const TileMap& map_of(int64_t kv_head) const { return maps_[maps_.size() == 1 ? 0 : kv_head]; }
  const TileMap& transposed_of(int64_t kv_head) const {
    return transposed_[transposed_.size() == 1 ? 0 : kv_head];
  }
  int64_t kv_tiles() const { return (problem_.tokens_kv + FlashTiling::kKeys - 1) / FlashTiling::kKeys; }
  int32_t keys_of(int64_t kv_tile) const {
    return static_cast<int32_t>(
        std::min<int64_t>(FlashTiling::kKeys, problem_.tokens_kv - kv_tile * FlashTiling::kKeys));
  }
  int32_t tokens_of(int64_t row_tile) const {
    return static_cast<int32_t>(
        std::min<int64_t>(tiling_.tokens, problem_.tokens_q - row_tile * tiling_.tokens));
  }
  int32_t panels_of(int64_t row_tile) const {
    return (tokens_of(row_tile) * tiling_.heads + tiling_.panel - 1) / tiling_.panel;
  }
  static int32_t in_steps(int32_t keys) {
    return (keys + FlashTiling::kKeyStep - 1) / FlashTiling::kKeyStep * FlashTiling::kKeyStep;
  }
  static const SmallGemm& of_keys(const std::vector<SmallGemm>& products, int32_t keys) {
    return products[keys / FlashTiling::kKeyStep - 1];
  }
  // The passes process the KV heads in rounds, so that packed keys stay within a bound. Calls body(first
  // head, heads) for each round.
  template <class Body>
  void for_each_round(const Body& body) const {
    for (int64_t first = 0; first < problem_.heads_kv; first += heads_at_once_) {
      body(first, std::min(heads_at_once_, problem_.heads_kv - first));
    }
  }

  int64_t widest() const { return std::max(problem_.head_dim, problem_.dim_v()); }

  // Loads a tile of [tokens, heads, head_dim] as f32: to [lanes, head_dim], with zeros past the last token,
  // and to panels transposed.
  void load_tile(const TensorView& tensor, int64_t row_tile, int64_t first_head, float factor, float* rows,
                 float* transposed) const;
  void load_keys(const TensorView& tensor, int64_t kv_tile, int64_t kv_head, float* rows) const;

  // Sets the lane intervals of a partial tile and each panel's key range; returns the mask.
  LaneMask mask_of(const TileMap& map, const Partial& partial, int64_t row_tile,
                   const Scratch& scratch) const;
  // Calls visit(kv_tile, mask) for each tile that the row tile sees, with scratch.ranges set.
  template <class Visit>
  void for_each_tile(const TileMap& map, int64_t row_tile, const Scratch& scratch, const Visit& visit) const;

  // Fills the lanes' slopes and positions of a row tile, with ALiBi.
  ScoreChange score_change(const Scratch& scratch, int64_t first_head, int64_t row_tile) const;

  void forward_tile(const ForwardArgs& args, const PackedHead& packed, const Scratch& scratch,
                    int64_t kv_head, int64_t first_head, int64_t row_tile) const;
  void backward_tile(const BackwardArgs& args, const PackedHead& packed, const Scratch& scratch, Turn* turns,
                     int64_t kv_head, int64_t first_head, int64_t row_tile) const;
  void reset(Turn& turn, const TileMap& transposed, int64_t kv_tile) const;
  void pass_on(Turn& turn, const TileMap& transposed, int64_t kv_tile) const;

  Problem problem_;
  FlashTiling tiling_;
  int threads_ = 1;            // number of thread scratches
  int64_t heads_at_once_ = 1;  // KV heads per round
  float scale_ = 0;
  std::vector<TileMap> maps_;        // one, or one per KV head
  std::vector<TileMap> transposed_;  // only which row tiles see a key tile; without partial masks
  int32_t layers_ = 0;               // most layers of any partial tile

  // Products by number of key steps.
  std::vector<SmallGemm> score_;           // [keys, panel] = k [keys, head_dim] * q_t [head_dim, panel]
  std::vector<SmallGemm> dprob_;           // [keys, panel] = v [keys, head_dim_v] * dout_t
  std::vector<SmallGemm> output_;          // out_t [head_dim_v, panel] += v_t * probabilities [keys, panel]
  std::vector<SmallGemm> query_gradient_;  // dq_t [head_dim, panel] += k_t * ds [keys, panel]
  std::vector<SmallGemm> key_gradient_;    // dk [keys, head_dim] += ds [keys, panel] * q [panel, head_dim]
  std::vector<SmallGemm> value_gradient_;  // dv [keys, head_dim_v] += probabilities * dout
};

template <class Visit>
void FlashPlan::for_each_tile(const TileMap& map, int64_t row_tile, const Scratch& scratch,
                              const Visit& visit) const {
  for (const Run& run : map.runs_of(row_tile)) {
    if (!run.full()) {
      visit(int64_t{run.tile}, mask_of(map, map.partials[run.partial()], row_tile, scratch));
      continue;
    }
    for (int64_t tile = run.tile; tile < int64_t{run.tile} + run.count(); ++tile) {
      const int32_t keys = keys_of(tile);
      const KeyRange all{0, in_steps(keys), keys};
      for (int32_t p = 0; p < tiling_.panels; ++p)
        scratch.ranges[p] = p < panels_of(row_tile) ? all : KeyRange{};
      visit(tile, LaneMask{});
    }
  }
}

}  // namespace longspan
