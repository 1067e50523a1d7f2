// The three steps of the backward pass, and the instances of the kernel.
#include <algorithm>
#include <numbers>

#include "base/cuda_check.h"
#include "base/error.h"
#include "kernels/sm90/backward_kernel.cuh"
#include "kernels/sm90/backward_passes.h"
#include "kernels/sm90/backward_plan.h"
#include "kernels/sm90/tensor_map.h"

namespace longspan::sm90 {
namespace {

template <class C>
void start(const BackwardParams& params, const Device& device, cudaStream_t stream) {
  constexpr int kSharedBytes = sizeof(BackwardSharedMemory<C>);
  static_assert(kSharedBytes <= 227 * 1024, "the shared memory plan is larger than a block may have");
  LONGSPAN_CUDA(
      cudaFuncSetAttribute(sm90_backward<C>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSharedBytes));
  const auto grid = static_cast<unsigned>(std::min(device.units, params.items));
  sm90_backward<C><<<grid, C::kThreads, kSharedBytes, stream>>>(params);
  LONGSPAN_CUDA_LAUNCHED();
}

template <class Element>
void start_for(int64_t head_dim, const BackwardShape& shape, const BackwardParams& params,
               const Device& device, cudaStream_t stream) {
  using enum BackwardStore;
  const auto is = [&](int64_t d, int rows, bool prefetch, BackwardStore store) {
    return head_dim == d && shape.rows == rows && shape.prefetch_scores == prefetch && shape.store == store;
  };
#define LONGSPAN_START(d, rows, q_stages, prefetch, store) \
  if (is(d, rows, prefetch, store))                        \
  return start<BackwardConfig<Element, d, rows, q_stages, 1, prefetch, store>>(params, device, stream)
  LONGSPAN_START(128, 64, 3, true, kRegisters);
  LONGSPAN_START(64, 64, 3, true, kRegisters);
  if constexpr (sizeof(Element) == 2 && !std::is_same_v<Element, __half>) {
    LONGSPAN_START(128, 64, 2, true, kBulk);
    LONGSPAN_START(128, 64, 3, false, kRegisters);
    LONGSPAN_START(128, 64, 2, false, kBulk);
    LONGSPAN_START(128, 64, 2, true, kOrdered);
    LONGSPAN_START(128, 80, 2, false, kRegisters);
  }
#undef LONGSPAN_START
  LONGSPAN_CHECK(false, "no instance of the backward kernel has head_dim {} and {} rows", head_dim,
                 shape.rows);
}

HeadMasks transposed(const HeadMasks& masks) {
  HeadMasks result;
  for (const Mask& mask : masks) result.push_back(mask.transposed());
  return result;
}

size_t aligned(size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

GradientView view_of(const TensorView& tensor) {
  return {tensor.data, tensor.token_stride, tensor.head_stride};
}

}  // namespace

BackwardPlan::BackwardPlan(const Problem& problem, const BackwardShape& shape, const Device& device)
    : BackwardPlan(problem, shape, device,
                   lower_and_compile(transposed(*problem.masks), shape.tile_shape())) {}

BackwardPlan::BackwardPlan(const Problem& problem, const BackwardShape& shape, const Device& device,
                           const CompiledMap& map)
    : problem_(problem),
      shape_(shape),
      device_(device),
      map_(map, device),
      row_tiles_(static_cast<int32_t>((problem.tokens_q + shape.rows - 1) / shape.rows)) {
  const size_t rows = static_cast<size_t>(problem.heads_q) * static_cast<size_t>(row_tiles_ * shape.rows);
  dq_ = aligned(rows * 2 * sizeof(float));
  workspace_bytes_ = dkv_ = dq_ + aligned(rows * static_cast<size_t>(problem.head_dim) * sizeof(float));
  if (shape.store == BackwardStore::kOrdered) {
    LONGSPAN_CHECK(shape.parts == 1, "dk and dv of {} parts have no order", shape.parts);
    const auto workers = static_cast<int32_t>(std::max<int64_t>(device.units / problem.heads_kv, 1));
    const BackwardTurns order =
        order_additions(map, shape.rows, workers, static_cast<int32_t>(problem.group_size()));
    std::vector<int32_t> packed(order.first.begin(), order.first.end());
    packed.insert(packed.end(), order.turns.begin(), order.turns.end());
    packed.resize(packed.size() + 32);  // a warp reads 32 at a time
    turns_ = Buffer(packed.size() * sizeof(int32_t), device);
    copy_bytes(turns_.data(), turns_.kind(), packed.data(), DeviceKind::kCpu, turns_.bytes());
    first_turns_ = order.first.size();
    descending_ = order.descending;
    turn_ = workspace_bytes_;
    workspace_bytes_ +=
        static_cast<size_t>(problem.heads_q) * static_cast<size_t>(row_tiles_) * 2 * sizeof(int32_t);
  }
  if (shape.parts > 1)
    workspace_bytes_ += static_cast<size_t>(map_.view().row_tiles) * kBackwardKeys *
                        static_cast<size_t>(problem.heads_kv * problem.head_dim) * 2 * sizeof(float);
}

void BackwardPlan::run(const BackwardArgs& args, cudaStream_t stream) {
  const DeviceMap& map = map_.view();
  const bool ordered = shape_.store == BackwardStore::kOrdered;
  const auto at = [&](size_t offset) {
    return reinterpret_cast<float*>(static_cast<char*>(args.workspace) + offset);
  };
  const BackwardWorkspace workspace{.stats = at(0),
                                    .dq = at(dq_),
                                    .dkv = shape_.parts > 1 ? at(dkv_) : nullptr,
                                    .turn = ordered ? reinterpret_cast<int32_t*>(at(turn_)) : nullptr,
                                    .rows = shape_.rows,
                                    .row_tiles = row_tiles_,
                                    .key_tiles = map.row_tiles};
  prepare_backward(problem_, args, workspace, stream);

  BackwardParams params;
  params.q = key_map(args.q, shape_.rows);
  params.dout = key_map(args.dout, shape_.rows);
  params.k = key_map(args.k, kBackwardKeys);
  params.v = key_map(args.v, kBackwardKeys);
  params.stats = workspace.stats;
  params.dq = workspace.dq;
  params.dkv = workspace.dkv;
  params.dk = view_of(args.dk);
  params.dv = view_of(args.dv);
  params.fp32_output = problem_.fp32_output;
  params.work = map.work;
  params.runs = map.runs;
  params.partials = map.partials;
  params.spans = map.spans;
  if (ordered) {
    params.first_turn = turns_.as<uint32_t>();
    params.turns = turns_.as<int32_t>() + first_turns_;
    params.turn = workspace.turn;
    params.descending = descending_;
  }
  params.key_tiles = map.row_tiles;
  params.row_tiles = row_tiles_;
  params.per_head_masks = problem_.masks->size() > 1;
  params.heads_kv = static_cast<int32_t>(problem_.heads_kv);
  params.parts = shape_.parts;
  params.heads_per_item = static_cast<int32_t>(problem_.group_size() / shape_.parts);
  params.items = map.row_tiles * params.heads_kv * params.parts;
  params.tokens_kv = static_cast<int32_t>(problem_.tokens_kv);
  params.scale = problem_.softmax_scale();
  params.scale_log2 = params.scale * std::numbers::log2e_v<float>;
  params.counters = map.counters;
  if (problem_.dtype == DType::kBF16)
    start_for<__nv_bfloat16>(problem_.head_dim, shape_, params, device_, stream);
  else
    start_for<__half>(problem_.head_dim, shape_, params, device_, stream);

  finish_backward(problem_, args, workspace, stream);
}

}  // namespace longspan::sm90
