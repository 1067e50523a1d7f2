#include "kernels/sm90/backward/plan.h"

#include <cstdint>
#include <numbers>

#include "attention/sinks_cuda.h"
#include "base/error.h"
#include "kernels/sm90/backward/launch.h"
#include "kernels/sm90/backward/planner/arrangement.h"
#include "kernels/sm90/isa/tensor_map.h"

namespace longspan::sm90 {
namespace {

GradientView view_of(const TensorView& tensor) {
  return {tensor.data, tensor.token_stride, tensor.head_stride};
}

}  // namespace

BackwardPlan::BackwardPlan(const Problem& problem, const BackwardShape& shape, const Device& device)
    : problem_(problem), device_(device) {
  // Kept until the next plan, so that the heap does not return its pages in between.
  thread_local BackwardArrangement all;
  all = arrange_backward(problem, shape, device.units);
  shape_ = all.shape;
  if (shape_.skips_parts()) mark_unseen_parts(all.grid.map);
  pack_.add(all.items.work, params_.work);
  pack_.add(all.items.key_tiles, params_.key_tile);
  pack_.add(all.grid.rows, params_.row_tile);
  pack_.add(all.grid.map.runs, params_.runs);
  pack_.add(all.grid.map.partials, params_.partials);
  pack_.add(all.grid.map.spans, params_.spans);
  if (!all.visited_once.empty()) pack_.add(all.visited_once, params_.visited_once);
  if (shape_.store == BackwardStore::kOrdered) pack_.add(all.schedule.turns, params_.turns);
  if (all.schedule.streams > 0) pack_.add(all.schedule.next, params_.next_item);
  pack_.upload(device);
  params_.streams = all.schedule.streams;
  params_.turns_of_head = all.schedule.of_head;
  params_.descending = all.split.walk.descending;
  params_.by_rows = all.split.walk.by_rows;
  static_cast<BackwardJobs&>(params_) = all;
  params_.key_tiles = all.key_tiles;
  params_.per_head_masks = problem.masks->size() > 1;
  params_.items_per_head = all.items.per_list;
  const int32_t last_heads = all.heads_of(all.last_section);
  params_.items = all.items.per_list * (params_.heads_kv - last_heads) + all.items.per_last * last_heads;
  params_.first_cut_head = params_.heads_kv - (all.split.last_pieces > 1 ? last_heads : 0);
  params_.items_per_mask = all.items.per_list * all.items.lists;
  params_.last_list = all.last_list;
  params_.tokens_q = static_cast<int32_t>(problem.tokens_q);
  params_.tokens_kv = static_cast<int32_t>(problem.tokens_kv);
  params_.scale = problem.softmax_scale();
  params_.scale_log2 = params_.scale * std::numbers::log2e_v<float>;
  params_.pass_ctas = all.pass_ctas;
  lay_out_workspace(all.items.shared || problem.same_launches ? 0 : params_.first_cut_head);
  constexpr size_t kMostKept = size_t{4} << 20;  // bytes
  if (pack_.bytes() > kMostKept) all = BackwardArrangement();
}

void BackwardPlan::lay_out_workspace(int32_t first_shared) {
  const auto heads_q = static_cast<size_t>(problem_.heads_q),
             heads_kv = static_cast<size_t>(problem_.heads_kv);
  const auto head_dim = static_cast<size_t>(problem_.head_dim),
             head_dim_v = static_cast<size_t>(problem_.dim_v());
  const size_t tiles = heads_q * static_cast<size_t>(params_.row_tiles);
  const size_t key_tiles = heads_kv * static_cast<size_t>(params_.key_tiles);
  const auto take = [&](size_t bytes) {
    const size_t offset = workspace_bytes_;
    workspace_bytes_ += (bytes + 255) / 256 * 256;
    return offset;
  };
  const bool in_turns = shape_.store == BackwardStore::kClaimed || shape_.store == BackwardStore::kOrdered;
  const size_t rows = static_cast<size_t>(shape_.rows) * tiles;
  take(rows * 2 * sizeof(float));
  const auto sections = problem_.same_launches ? heads_kv : static_cast<size_t>(params_.last_section) + 1;
  counters_ = take((kBackwardCounters + 2 * sections) * sizeof(int32_t));
  dq_ = take((shape_.in_rows ? heads_q * static_cast<size_t>(problem_.tokens_q) : rows) * head_dim *
             sizeof(float));
  if (in_turns) turn_ = take(tiles * 2 * shape_.ctas() * sizeof(int32_t));
  if (first_shared < params_.heads_kv) {
    const size_t of_head = params_.key_tiles * static_cast<size_t>(shape_.keys) * (head_dim + head_dim_v);
    dkv_skipped_ = static_cast<size_t>(first_shared) * of_head;
    dkv_ = take((heads_kv * of_head - dkv_skipped_) * sizeof(float));
    parts_ = take(key_tiles * static_cast<size_t>(shape_.warpgroups()) * sizeof(int32_t));
  }
}

void BackwardPlan::run(const BackwardArgs& args, cudaStream_t stream) {
  const gpu::DevicePack::Use use(pack_, stream);
  const auto at = [&](size_t offset) {
    return reinterpret_cast<float*>(static_cast<char*>(args.workspace) + offset);
  };
  const auto counters_at = [&](size_t offset) {
    return offset > 0 ? reinterpret_cast<int32_t*>(at(offset)) : nullptr;
  };
  BackwardParams params = params_;
  // CTAs of the kernel can only do passes over tensors of the inputs' dtype.
  if (args.o.dtype != problem_.dtype || args.dq.dtype != problem_.dtype) params.pass_ctas = 0;
  if (args.dq.dtype != problem_.dtype) params.visited_once = nullptr;
  const Panels panels = shape_.ctas() > 1 ? Panels::kOne : Panels::kAll;
  params.q = key_map(args.q, shape_.rows, panels);
  params.dout = key_map(args.dout, shape_.rows, panels);
  params.k = key_map(args.k, shape_.keys / shape_.ctas(), panels);
  params.v = key_map(args.v, shape_.keys / shape_.ctas(), panels);
  params.v_rows = args.v;
  params.stats = at(0);
  params.dq = at(dq_);
  params.dkv = dkv_ > 0 ? at(dkv_) - dkv_skipped_ : nullptr;
  params.dq_rows = view_of(args.dq);
  params.dk = view_of(args.dk);
  params.dv = view_of(args.dv);
  params.fp32_output = args.dk.dtype == DType::kF32;
  params.turn = counters_at(turn_);
  params.parts = counters_at(parts_);
  params.counters = counters_at(counters_);
  if (params.pass_ctas > 0) {
    params.prepared = params.counters + kBackwardCounters;
    params.added = params.prepared + params.last_section + 1;
    params.o = key_map(args.o, shape_.rows);
    params.lse = args.lse;
    params.dlse = args.dlse;
  }
  prepare_backward(problem_, shape_, params, args, stream);
  launch_backward(problem_, shape_, params, device_, stream);
  finish_backward(problem_, shape_, params, args, stream);
  if (args.sinks != nullptr)
    cuda::sink_gradients({.data = params.stats, .tiles = params.row_tiles, .rows = shape_.rows, .sign = -1},
                         problem_.heads_q, args.sinks, args.dsinks, {stream});
}

}  // namespace longspan::sm90
