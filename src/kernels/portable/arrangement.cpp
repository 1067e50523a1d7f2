#include "kernels/portable/arrangement.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numbers>
#include <vector>

#include <fmt/format.h>

#include "attention/kernel.h"
#include "kernels/portable/choose_pieces.h"
#include "kernels/portable/choose_shape.h"
#include "mask/lowering/lower.h"

namespace longspan::portable {
namespace {

constexpr int64_t kMostHeadDim = 256;
constexpr int64_t kMostTokens = std::numeric_limits<int32_t>::max() / 2;
constexpr int64_t kLeastTile = 4;  // tokens: 32 rows of 8 heads

Heads heads_of(const Problem& problem) {
  const int pack = choose_pack(problem);
  return {.tokens_q = static_cast<int32_t>(problem.tokens_q),
          .tokens_kv = static_cast<int32_t>(problem.tokens_kv),
          .head_dim = static_cast<int32_t>(problem.head_dim),
          .head_dim_v = static_cast<int32_t>(problem.dim_v()),
          .heads_kv = static_cast<int32_t>(problem.heads_kv),
          .units_per_kv = static_cast<int32_t>(problem.group_size() / pack),
          .log2_pack = std::countr_zero(static_cast<unsigned>(pack)),
          .per_head_masks = problem.masks->size() > 1 ? 1 : 0};
}

TensorRows rows_of(const TensorView& tensor) {
  return {tensor.data, tensor.token_stride, tensor.head_stride, tensor.dtype == DType::kF32 ? 1 : 0};
}

ScoreChange change_of(const Problem& problem, const float* slopes) {
  constexpr float kLog2E = std::numbers::log2e_v<float>;
  ScoreChange change;
  change.scale_log2 = problem.softmax_scale() * kLog2E;
  change.cap_log2 = problem.softcap * kLog2E;
  change.scale_over_cap = problem.softcap == 0 ? 0 : problem.softmax_scale() / problem.softcap;
  if (!problem.alibi_slopes.empty()) change.slopes = slopes;
  change.shift = static_cast<int32_t>(problem.tokens_kv - problem.tokens_q);
  return change;
}

}  // namespace

std::string unsupported_problem(const Problem& problem) {
  if (problem.dtype != DType::kBF16 && problem.dtype != DType::kF16) return "needs bf16 or f16";
  for (const int64_t dim : {problem.head_dim, problem.dim_v()})
    if (dim < 8 || dim > kMostHeadDim || dim % 8 != 0)
      return fmt::format("needs head_dim a multiple of 8 up to {}, not {}", kMostHeadDim, dim);
  if (!(problem.softmax_scale() > 0)) return "needs a positive scale";
  const Features all_but_sinks{.head_dim_v = true, .softcap = true, .alibi = true};
  if (std::string reason = lacking(all_but_sinks, problem); !reason.empty()) return reason;
  const int64_t tokens = std::max(problem.tokens_q, problem.tokens_kv);
  if (tokens > kMostTokens || tokens / kLeastTile * problem.heads_q > kMostTokens)
    return "has 32-bit tile numbers: too many tokens or heads";
  return "";
}

MapView view_of(const KernelMap& map) {
  return {map.rows.data(), map.runs.data(), map.spans.data(), map.slots.data(), map.items, map.rows_per_tile};
}

ForwardArrangement arrange_forward(const Problem& problem, const ForwardShape& shape, const Device& device) {
  ForwardArrangement out;
  out.shape = shape;
  out.heads = heads_of(problem);
  std::vector<TileMap> maps;
  for (const Mask& mask : *problem.masks)
    maps.push_back(lower(mask, {shape.rows >> out.heads.log2_pack, shape.keys}));
  out.map = compile_map(maps, false);
  const int64_t kv_bytes =
      problem.tokens_kv * (problem.head_dim + problem.dim_v()) * static_cast<int64_t>(size_of(problem.dtype));
  out.order = {.heads = out.heads.units(),
               .section_heads = choose_section(problem.heads_kv, kv_bytes, device) * out.heads.units_per_kv,
               .map_items = out.map.items};
  return out;
}

ForwardParams forward_params(const Problem& problem, const ForwardArrangement& arrangement,
                             const MapView& map, const ForwardArgs& args, const float* slopes) {
  ForwardParams p;
  p.q = rows_of(args.q);
  p.k = rows_of(args.k);
  p.v = rows_of(args.v);
  p.o = rows_of(args.o);
  p.lse = args.lse;
  p.part_o = rows_of(args.part_o);
  p.part_lse = args.part_lse;
  p.sinks = args.sinks;
  p.map = map;
  p.heads = arrangement.heads;
  p.order = arrangement.order;
  p.change = change_of(problem, slopes);
  p.scale_log2 = p.change.any() ? 1 : p.change.scale_log2;
  return p;
}

BackwardArrangement arrange_backward(const Problem& problem, const BackwardShape& shape,
                                     const Device& device) {
  BackwardArrangement out;
  out.shape = shape;
  out.heads = heads_of(problem);
  out.in_turns = problem.deterministic;
  const int32_t tokens = shape.rows >> out.heads.log2_pack;  // of a tile of rows
  std::vector<TileMap> maps;
  for (const Mask& mask : *problem.masks) maps.push_back(lower_transposed(mask, {shape.keys, tokens}));
  const int64_t ctas = std::max(device.units, 1) * int64_t{ctas_of_unit(shape, device.capability)};
  const int32_t segments = choose_segments(problem, shape, device);
  const Pieces pieces = choose_pieces(problem, maps, segments, ctas);
  out.map = compile_map(maps, out.in_turns, pieces);
  out.slots = std::min(out.map.items - out.map.row_tiles, out.map.row_tiles);
  out.query_tiles = static_cast<int32_t>(maps.front().column_tiles());
  out.order = {.heads = out.heads.heads_kv,
               .section_heads = choose_backward_section(problem, pieces, maps, ctas),
               .map_items = out.map.items};

  const auto tiles = static_cast<size_t>(out.heads.units()) * static_cast<size_t>(out.query_tiles);
  const size_t rows = tiles * static_cast<size_t>(shape.rows);
  const auto take = [&](size_t bytes) {
    const size_t offset = out.workspace.bytes;
    out.workspace.bytes += (bytes + 255) / 256 * 256;
    return offset;
  };
  out.workspace.stats = take(rows * 2 * sizeof(float));
  out.workspace.dq_sums = take(rows * static_cast<size_t>(shape.head_dim) * sizeof(float));
  const size_t slots = static_cast<size_t>(out.heads.heads_kv) * static_cast<size_t>(out.slots);
  out.workspace.dkv_sums = take(slots * 2 * static_cast<size_t>(shape.keys * shape.head_dim) * sizeof(float));
  out.workspace.arrived = take(slots * sizeof(int32_t));
  if (out.in_turns) {
    out.workspace.turns = take(tiles * sizeof(int32_t));
    out.workspace.next_item = take(sizeof(int32_t));
  }
  return out;
}

BackwardParams backward_params(const Problem& problem, const BackwardArrangement& arrangement,
                               const MapView& map, const BackwardArgs& args, const float* slopes) {
  const auto at = [&](size_t offset) { return static_cast<char*>(args.workspace) + offset; };
  BackwardParams p;
  p.q = rows_of(args.q);
  p.k = rows_of(args.k);
  p.v = rows_of(args.v);
  p.o = rows_of(args.o);
  p.dout = rows_of(args.dout);
  p.dq = rows_of(args.dq);
  p.dk = rows_of(args.dk);
  p.dv = rows_of(args.dv);
  p.lse = args.lse;
  p.dlse = args.dlse;
  p.map = map;
  p.heads = arrangement.heads;
  p.order = arrangement.order;
  p.scale = problem.softmax_scale();
  p.change = change_of(problem, slopes);
  p.scale_log2 = p.change.scale_log2;
  p.rows = arrangement.shape.rows;
  p.padded_head_dim = arrangement.shape.head_dim;
  p.query_tiles = arrangement.query_tiles;
  p.stats = reinterpret_cast<float*>(at(arrangement.workspace.stats));
  p.dq_sums = reinterpret_cast<float*>(at(arrangement.workspace.dq_sums));
  p.dkv_sums = reinterpret_cast<float*>(at(arrangement.workspace.dkv_sums));
  p.arrived = reinterpret_cast<int32_t*>(at(arrangement.workspace.arrived));
  p.slots = arrangement.slots;
  p.keys = arrangement.shape.keys;
  if (arrangement.in_turns) {
    p.turns = reinterpret_cast<int32_t*>(at(arrangement.workspace.turns));
    p.next_item = reinterpret_cast<int32_t*>(at(arrangement.workspace.next_item));
  }
  return p;
}

}  // namespace longspan::portable
