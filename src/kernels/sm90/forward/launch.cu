// Fills in the forward kernel's parameters and picks the instance.
#include <bit>
#include <numbers>

#include "base/cuda/cuda_check.h"
#include "base/error.h"
#include "kernels/sm90/forward/plan.h"
#include "kernels/sm90/forward/start.cuh"
#include "kernels/sm90/isa/tensor_map.h"

namespace longspan::sm90 {
namespace {

// Sets counters to zero.
__global__ void clear_counters(int4* counters, int fours) {
  griddepcontrol_launch_dependents();
  for (int i = static_cast<int>(threadIdx.x); i < fours; i += static_cast<int>(blockDim.x))
    counters[i] = make_int4(0, 0, 0, 0);
}

template <class Element>
void start_for(int64_t head_dim, const ForwardShape& shape, ForwardParams& params, const Device& device,
               cudaStream_t stream) {
  const auto is = [&](int64_t d, int columns, int piece, int streams, int warpgroups = 2) {
    return head_dim == d && shape.columns == columns && shape.piece == piece && shape.streams == streams &&
           shape.warpgroups == warpgroups;
  };
  if (is(128, 80, 80, 1, 3))
    return start_forward<ForwardConfig<Element, 128, 80, 80, 1, 3>>(params, device, stream);
  if (is(128, 128, 128, 1))
    return start_forward<ForwardConfig<Element, 128, 128, 128, 1>>(params, device, stream);
  if (is(128, 128, 64, 1))
    return start_forward<ForwardConfig<Element, 128, 128, 64, 1>>(params, device, stream);
  if (is(128, 128, 64, 2))
    return start_forward<ForwardConfig<Element, 128, 128, 64, 2>>(params, device, stream);
#ifndef LONGSPAN_SM90_FORWARD_TRIALS
  if (is(64, 64, 64, 1, 4))
    return start_forward<ForwardConfig<Element, 64, 64, 64, 1, 4>>(params, device, stream);
  if (is(64, 128, 128, 1, 3))
    return start_forward<ForwardConfig<Element, 64, 128, 128, 1, 3>>(params, device, stream);
  if (is(64, 128, 128, 1))
    return start_forward<ForwardConfig<Element, 64, 128, 128, 1>>(params, device, stream);
  if (is(64, 128, 64, 1))
    return start_forward<ForwardConfig<Element, 64, 128, 64, 1>>(params, device, stream);
  if (is(64, 128, 64, 2))
    return start_forward<ForwardConfig<Element, 64, 128, 64, 2>>(params, device, stream);
#endif
  LONGSPAN_CHECK(
      false,
      "no instance of the forward kernel has head_dim {}, {} columns of {}, {} warpgroups and {} streams",
      head_dim, shape.columns, shape.piece, shape.warpgroups, shape.streams);
}

}  // namespace

void clear_forward_counters(const ForwardParams& params, cudaStream_t stream) {
  clear_counters<<<1, 128, 0, stream>>>(reinterpret_cast<int4*>(params.next_item),
                                        static_cast<int>(kForwardWorkspaceBytes / sizeof(int4)));
  LONGSPAN_CUDA_LAUNCHED();
}

void launch_forward(const Problem& problem, const ForwardShape& shape, const ForwardParams& planned,
                    const ForwardArgs& args, const Device& device, cudaStream_t stream) {
  ForwardParams params = planned;
  params.q = query_map(args.q, 64 / shape.pack, shape.pack);
  if (args.o.dtype == DType::kF32) {
    params.o_f32 = static_cast<float*>(args.o.data);
    params.o_token_stride = args.o.token_stride;
    params.o_head_stride = args.o.head_stride;
  } else {
    if (!is_large(problem)) params.o = query_map(args.o, 64 / shape.pack, shape.pack);
    params.o_raw = args.o.data;
    params.o_token_stride = args.o.token_stride;
    params.o_head_stride = args.o.head_stride;
    if (!is_large(problem) &&  // a row tile before the last one may be lower
        (shape.row_tiles == RowTiles::kOfBlocks || problem.tokens_q % shape.tokens() != 0))
      for (int i = 0; 1 << i < 64 / shape.pack; ++i)
        params.o_panel[i] = query_map(args.o, 1 << i, shape.pack, Panels::kOne);
  }
  params.lse = args.lse;
  params.sinks = args.sinks;
  if (args.part_lse != nullptr) {
    params.part_o = static_cast<const float*>(args.part_o.data);
    params.part_token_stride = args.part_o.token_stride;
    params.part_head_stride = args.part_o.head_stride;
    params.part_lse = args.part_lse;
  }
  const bool all = shape.piece == shape.columns && !in_pairs(shape, params);
  params.k = key_map(args.k, shape.piece, all ? Panels::kAll : Panels::kOne);
  params.v = key_map(args.v, shape.piece, all ? Panels::kAll : Panels::kOne);
  params.per_head_masks = problem.masks->size() > 1;
  params.units_per_kv = static_cast<int32_t>(problem.group_size() / shape.pack);
  params.next_item = static_cast<int32_t*>(args.workspace);
  params.tokens_q = static_cast<int32_t>(problem.tokens_q);
  params.tokens_kv = static_cast<int32_t>(problem.tokens_kv);
  params.log2_pack = std::countr_zero(static_cast<unsigned>(shape.pack));
  params.scale = problem.softmax_scale();
  params.scale_log2 = params.scale * std::numbers::log2e_v<float>;
  if constexpr (kFaulty) params.fault = fault_asked_for();
  if (is_large(problem)) return start_large_forward(problem, shape, params, device, stream);
#ifndef LONGSPAN_SM90_FORWARD_TRIALS
  if (problem.dtype != DType::kBF16)
    return start_for<__half>(problem.head_dim, shape, params, device, stream);
#endif
  start_for<__nv_bfloat16>(problem.head_dim, shape, params, device, stream);
}

}  // namespace longspan::sm90
