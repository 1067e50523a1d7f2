#include "kernels/cpu/flash_plan.h"

#include <cstring>
#include <functional>
#include <numbers>

#include "base/error.h"
#include "base/parallel.h"
#include "mask/lowering/lower.h"

namespace longspan {

namespace {

constexpr int32_t kRows = 256;              // lanes per tile: enough reuse of keys from the L2 cache
constexpr size_t kPackedBytes = 256 << 20;  // packed keys and values per round, unless one head needs more

std::vector<SmallGemm> by_keys(GemmLibrary library, const std::function<GemmShape(int32_t keys)>& shape) {
  std::vector<SmallGemm> products;
  for (int32_t keys = FlashTiling::kKeyStep; keys <= FlashTiling::kKeys; keys += FlashTiling::kKeyStep) {
    products.emplace_back(shape(keys), library);
  }
  return products;
}

}  // namespace

FlashTiling FlashTiling::of(const Problem& problem, GemmLibrary library) {
  FlashTiling tiling;
  const int64_t group = problem.group_size();
  for (int32_t heads = 1; heads <= std::min<int64_t>(group, 16); ++heads) {
    if (group % heads == 0) tiling.heads = heads;
  }
  tiling.tokens = kRows / tiling.heads;
  // LIBXSMM reads its operands in place: with 64 lanes a panel of q stays in L1. OpenBLAS copies the operands
  // first and prefers large products.
  tiling.panel = library == GemmLibrary::kXsmm ? 64 : kRows;
  tiling.panels = kRows / tiling.panel;
  return tiling;
}

FlashPlan::FlashPlan(const Problem& problem, GemmLibrary library)
    : problem_(problem),
      tiling_(FlashTiling::of(problem, library)),
      threads_(thread_count()),
      scale_(problem.softmax_scale()) {
  const int32_t panel = tiling_.panel, keys_of_tile = FlashTiling::kKeys;
  const auto scores = [&](int32_t dim) {
    return by_keys(library,
                   [=](int32_t keys) { return GemmShape{keys, panel, dim, dim, panel, panel, false}; });
  };
  const auto rows = [&](int32_t dim) {
    return by_keys(
        library, [=](int32_t keys) { return GemmShape{dim, panel, keys, keys_of_tile, panel, panel, true}; });
  };
  const auto keys = [&](int32_t dim) {
    return by_keys(library, [=](int32_t keys) { return GemmShape{keys, dim, panel, panel, dim, dim, true}; });
  };
  const auto dim = static_cast<int32_t>(problem.head_dim), dim_v = static_cast<int32_t>(problem.dim_v());
  score_ = scores(dim);
  dprob_ = scores(dim_v);
  output_ = rows(dim_v);
  query_gradient_ = rows(dim);
  key_gradient_ = keys(dim);
  value_gradient_ = keys(dim_v);

  for (const Mask& mask : *problem.masks) {
    const TileMap& map = maps_.emplace_back(lower(mask, {tiling_.tokens, keys_of_tile}));
    for (const Partial& partial : map.partials) layers_ = std::max(layers_, partial.layers);
    TileMap& transposed = transposed_.emplace_back(lower(mask.transposed(), {keys_of_tile, tiling_.tokens}));
    transposed.partials = {};
    transposed.spans = {};
    // The order of additions in the backward pass relies on equal visits.
    int64_t visits = 0, transposed_visits = 0;
    for (int32_t tiles : map.tiles) visits += tiles;
    for (int32_t tiles : transposed.tiles) transposed_visits += tiles;
    LONGSPAN_CHECK(visits == transposed_visits, "{} tiles of the mask, but {} of the transposed one", visits,
                   transposed_visits);
  }

  heads_at_once_ = 1;
  const size_t of_scratch = carve(Direction::kBackward, nullptr).bytes;
  heads_at_once_ = 2;
  const size_t of_head = carve(Direction::kBackward, nullptr).bytes - of_scratch;
  heads_at_once_ = std::clamp<int64_t>(kPackedBytes / of_head, 1, problem.heads_kv);
}

FlashPlan::Workspace FlashPlan::carve(Direction direction, void* memory) const {
  const bool backward = direction == Direction::kBackward;
  Carver carver{static_cast<char*>(memory)};
  Workspace workspace;
  const int64_t packed = kv_tiles() * FlashTiling::kKeys * problem_.head_dim;
  const int64_t packed_v = kv_tiles() * FlashTiling::kKeys * problem_.dim_v();
  for (int64_t h = 0; h < heads_at_once_; ++h) {
    PackedHead head{};
    head.k = carver.take(packed);
    if (backward) {
      head.v = carver.take(packed_v);
      head.k_t = carver.take(packed);
      head.dk = carver.take(packed);
      head.dv = carver.take(packed_v);
    } else {
      head.v_t = carver.take(packed_v);
    }
    workspace.heads.push_back(head);
  }
  const int64_t lanes = tiling_.lanes();
  const int64_t scores = int64_t{FlashTiling::kKeys} * tiling_.panel;
  for (int thread = 0; thread < threads_; ++thread) {
    Scratch scratch{};
    // Also used where a thread packs a tile of keys.
    scratch.rows = carver.take(std::max<int64_t>(lanes, FlashTiling::kKeys) * widest());
    scratch.q_t = carver.take(lanes * problem_.head_dim);
    scratch.out_t = carver.take(lanes * (backward ? widest() : problem_.dim_v()));
    if (backward) {
      scratch.dout = carver.take(lanes * problem_.dim_v());
      scratch.dout_t = carver.take(lanes * problem_.dim_v());
      scratch.dprobs = carver.take(scores);
      if (problem_.softcap != 0) scratch.derivatives = carver.take(scores);
    }
    scratch.scores = carver.take(scores);
    if (!problem_.alibi_slopes.empty()) {
      scratch.slope = carver.take(lanes);
      scratch.position = carver.take<int32_t>(lanes);
    }
    scratch.maximum = carver.take(lanes);
    scratch.sum = carver.take(lanes);
    scratch.begin = carver.take<int32_t>(layers_ * lanes);
    scratch.end = carver.take<int32_t>(layers_ * lanes);
    scratch.ranges = carver.take<KeyRange>(tiling_.panels);
    workspace.threads.push_back(scratch);
  }
  if (backward) workspace.turns = carver.take<Turn>(heads_at_once_ * kv_tiles());
  workspace.bytes = carver.used;
  return workspace;
}

size_t FlashPlan::workspace_bytes(Direction direction) const {
  return carve(direction, nullptr).bytes;
}

size_t FlashPlan::plan_bytes() const {
  size_t bytes = sizeof(*this);
  for (const TileMap& map : maps_) bytes += map.bytes();
  for (const TileMap& map : transposed_) bytes += map.bytes();
  return bytes;
}

void FlashPlan::load_tile(const TensorView& tensor, int64_t row_tile, int64_t first_head, float factor,
                          float* rows, float* transposed) const {
  const int64_t d = tensor.head_dim, first = row_tile * tiling_.tokens;
  float* row = rows;
  for (int64_t t = 0; t < tokens_of(row_tile); ++t) {
    for (int64_t h = 0; h < tiling_.heads; ++h, row += d) {
      load_elements(tensor.row_address(first + t, first_head + h), tensor.dtype, d, factor, row);
    }
  }
  float* end = rows + int64_t{panels_of(row_tile)} * tiling_.panel * d;
  std::memset(row, 0, (end - row) * sizeof(float));
  if (transposed == nullptr) return;
  const int64_t panel = tiling_.panel * d;
  for (int32_t p = 0; p < panels_of(row_tile); ++p) {
    transpose(rows + p * panel, d, tiling_.panel, static_cast<int32_t>(d), transposed + p * panel,
              tiling_.panel);
  }
}

void FlashPlan::load_keys(const TensorView& tensor, int64_t kv_tile, int64_t kv_head, float* rows) const {
  const int64_t d = tensor.head_dim, first = kv_tile * FlashTiling::kKeys, keys = keys_of(kv_tile);
  for (int64_t j = 0; j < keys; ++j) {
    load_elements(tensor.row_address(first + j, kv_head), tensor.dtype, d, 1.0f, rows + j * d);
  }
  std::memset(rows + keys * d, 0, (FlashTiling::kKeys - keys) * d * sizeof(float));
}

ScoreChange FlashPlan::score_change(const Scratch& scratch, int64_t first_head, int64_t row_tile) const {
  ScoreChange change;
  change.softcap = problem_.softcap * std::numbers::log2e_v<float>;
  if (problem_.alibi_slopes.empty()) return change;
  const int64_t first = row_tile * tiling_.tokens + problem_.tokens_kv - problem_.tokens_q;
  for (int64_t lane = 0; lane < tiling_.lanes(); ++lane) {
    const float slope = problem_.alibi_slopes[static_cast<size_t>(first_head + lane % tiling_.heads)];
    scratch.slope[lane] = slope * std::numbers::log2e_v<float>;
    scratch.position[lane] = static_cast<int32_t>(first + lane / tiling_.heads);
  }
  change.slope = scratch.slope;
  change.position = scratch.position;
  return change;
}

LaneMask FlashPlan::mask_of(const TileMap& map, const Partial& partial, int64_t row_tile,
                            const Scratch& scratch) const {
  const int32_t lanes = tiling_.lanes(), heads = tiling_.heads, tokens = tokens_of(row_tile);
  constexpr int32_t kNone = FlashTiling::kKeys;
  for (int32_t p = 0; p < tiling_.panels; ++p) scratch.ranges[p] = {kNone, 0, 0};  // valid: the end, at first
  for (int32_t layer = 0; layer < partial.layers; ++layer) {
    const std::span<const Span> spans = map.layer(partial.first + layer);
    int32_t* begin = scratch.begin + int64_t{layer} * lanes;
    int32_t* end = scratch.end + int64_t{layer} * lanes;
    for (int32_t t = 0; t < tokens; ++t) {
      const Span span = spans[t];
      std::fill_n(begin + int64_t{t} * heads, heads, int32_t{span.begin});
      std::fill_n(end + int64_t{t} * heads, heads, int32_t{span.end});
      if (span.begin == span.end) continue;
      // The lanes of one token may straddle two panels.
      for (int32_t p = t * heads / tiling_.panel; p <= ((t + 1) * heads - 1) / tiling_.panel; ++p) {
        scratch.ranges[p].begin = std::min(scratch.ranges[p].begin, int32_t{span.begin});
        scratch.ranges[p].valid = std::max(scratch.ranges[p].valid, int32_t{span.end});
      }
    }
    std::fill(begin + int64_t{tokens} * heads, begin + lanes, 0);
    std::fill(end + int64_t{tokens} * heads, end + lanes, 0);
  }
  for (int32_t p = 0; p < tiling_.panels; ++p) {
    KeyRange& range = scratch.ranges[p];
    if (range.begin == kNone) {
      range = {};
      continue;
    }
    range.keys = in_steps(range.valid - range.begin);
    // Whole steps may extend past the last visible key, but not past the tile; the mask hides the rest.
    range.begin = std::min(range.begin, FlashTiling::kKeys - range.keys);
    range.valid = range.keys;
  }
  return {scratch.begin, scratch.end, partial.layers, lanes};
}

}  // namespace longspan
