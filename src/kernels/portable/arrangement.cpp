#include "kernels/portable/arrangement.h"

#include <bit>
#include <numbers>
#include <vector>

#include "mask/lowering/lower.h"

namespace longspan::portable {
namespace {

Heads heads_of(const Problem& problem) {
  const int pack = choose_pack(problem);
  return {.tokens_q = static_cast<int32_t>(problem.tokens_q),
          .tokens_kv = static_cast<int32_t>(problem.tokens_kv),
          .head_dim = static_cast<int32_t>(problem.head_dim),
          .heads_kv = static_cast<int32_t>(problem.heads_kv),
          .units_per_kv = static_cast<int32_t>(problem.group_size() / pack),
          .log2_pack = std::countr_zero(static_cast<unsigned>(pack)),
          .per_head_masks = problem.masks->size() > 1 ? 1 : 0};
}

TensorRows rows_of(const TensorView& tensor) {
  return {tensor.data, tensor.token_stride, tensor.head_stride, tensor.dtype == DType::kF32 ? 1 : 0};
}

}  // namespace

MapView view_of(const KernelMap& map) {
  return {map.rows.data(),  map.runs.data(), map.partials.data(),
          map.spans.data(), map.row_tiles,   map.rows_per_tile};
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
      2 * problem.tokens_kv * problem.head_dim * static_cast<int64_t>(size_of(problem.dtype));
  out.order = {.heads = out.heads.units(),
               .section_heads =
                   choose_section(problem.heads_kv, kv_bytes, device) * out.heads.units_per_kv,
               .row_tiles = out.map.row_tiles};
  return out;
}

ForwardParams forward_params(const Problem& problem, const ForwardArrangement& arrangement,
                             const MapView& map, const ForwardArgs& args) {
  ForwardParams p;
  p.q = rows_of(args.q);
  p.k = rows_of(args.k);
  p.v = rows_of(args.v);
  p.o = rows_of(args.o);
  p.lse = args.lse;
  p.part_o = rows_of(args.part_o);
  p.part_lse = args.part_lse;
  p.map = map;
  p.heads = arrangement.heads;
  p.order = arrangement.order;
  p.scale_log2 = problem.softmax_scale() * std::numbers::log2e_v<float>;
  return p;
}

}  // namespace longspan::portable
