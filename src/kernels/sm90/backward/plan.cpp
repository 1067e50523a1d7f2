#include "kernels/sm90/backward/plan.h"

#include <algorithm>
#include <cstdint>
#include <numbers>

#include "base/error.h"
#include "kernels/sm90/backward/launch.h"
#include "kernels/sm90/backward/passes.h"
#include "kernels/sm90/backward/planner/arrangement.h"
#include "kernels/sm90/isa/tensor_map.h"

namespace longspan::sm90 {
namespace {

size_t aligned(size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

GradientView view_of(const TensorView& tensor) {
  return {tensor.data, tensor.token_stride, tensor.head_stride};
}

}  // namespace

BackwardPlan::BackwardPlan(const Problem& problem, const BackwardShape& shape, const Device& device)
    : problem_(problem), shape_(shape), device_(device) {
  // Kept until the next plan, so that the heap does not return its pages in between.
  thread_local BackwardArrangement all;
  all = arrange_backward(problem, shape, device.units);
  row_tiles_ = all.row_tiles;
  key_tiles_ = all.key_tiles;
  items_per_head_ = all.items.per_list;
  mask_items_ = all.items.per_list * all.items.lists;
  section_heads_ = all.section_heads;
  last_section_ = all.last_section;
  last_list_ = all.last_list;
  walk_ = all.split.walk;
  work_ = pack_.add(all.items.work);
  key_tile_ = pack_.add(all.items.key_tiles);
  row_tile_ = pack_.add(all.grid.rows);
  runs_ = pack_.add(all.grid.map.runs);
  partials_ = pack_.add(all.grid.map.partials);
  spans_ = pack_.add(all.grid.map.spans);
  turns_ = pack_.add(all.schedule.turns);
  turns_of_head_ = all.schedule.of_head;
  streams_ = all.schedule.streams;
  if (streams_ > 0) next_item_ = pack_.add(all.schedule.next);
  pass_ctas_ = all.pass_ctas;
  shape_.rest = all.rests ? BackwardRest::kAlways : BackwardRest::kNever;
  pack_.upload(device);
  lay_out_workspace(all.items.shared || problem.same_launches);
  constexpr size_t kMostKept = size_t{4} << 20;  // bytes
  if (pack_.bytes() > kMostKept) all = BackwardArrangement();
}

void BackwardPlan::lay_out_workspace(bool shared) {
  const auto heads_q = static_cast<size_t>(problem_.heads_q),
             heads_kv = static_cast<size_t>(problem_.heads_kv);
  const auto head_dim = static_cast<size_t>(problem_.head_dim),
             head_dim_v = static_cast<size_t>(problem_.dim_v());
  const size_t tiles = heads_q * static_cast<size_t>(row_tiles_);
  const size_t key_tiles = heads_kv * static_cast<size_t>(key_tiles_);
  const auto take = [&](size_t bytes) {
    const size_t offset = workspace_bytes_;
    workspace_bytes_ += aligned(bytes);
    return offset;
  };
  const bool in_turns = shape_.store == BackwardStore::kClaimed || shape_.store == BackwardStore::kOrdered;
  const size_t rows = static_cast<size_t>(shape_.rows) * tiles;
  take(rows * 2 * sizeof(float));
  const auto sections = problem_.same_launches ? heads_kv : static_cast<size_t>(last_section_) + 1;
  counters_ = take((kBackwardCounters + 2 * sections) * sizeof(int32_t));
  dq_ = take((shape_.in_rows ? heads_q * static_cast<size_t>(problem_.tokens_q) : rows) * head_dim *
             sizeof(float));
  if (in_turns) turn_ = take(tiles * 2 * sizeof(int32_t));
  if (shape_.join_tiles > 0) front_ = take(tiles * sizeof(int32_t));
  if (shared) {
    dkv_ = take(key_tiles * static_cast<size_t>(shape_.keys) * (head_dim + head_dim_v) * sizeof(float));
    parts_ = take(key_tiles * 2 * sizeof(int32_t));
  }
}

void BackwardPlan::run(const BackwardArgs& args, cudaStream_t stream) {
  // They are written 16 bytes at a time. Inputs have tensor maps, which check the same.
  check_alignment("dq", args.dq);
  check_alignment("dk", args.dk);
  check_alignment("dv", args.dv);
  const gpu::DevicePack::Use use(pack_, stream);
  const bool ordered = shape_.store == BackwardStore::kOrdered;
  const auto at = [&](size_t offset) {
    return reinterpret_cast<float*>(static_cast<char*>(args.workspace) + offset);
  };
  const auto counters_at = [&](size_t offset) {
    return offset > 0 ? reinterpret_cast<int32_t*>(at(offset)) : nullptr;
  };
  // CTAs of the kernel can only do passes over tensors of the inputs' dtype.
  const int32_t pass_ctas =
      args.o.dtype == problem_.dtype && args.dq.dtype == problem_.dtype ? pass_ctas_ : 0;
  const auto group = static_cast<int32_t>(problem_.group_size());
  const BackwardJobs jobs{.section_heads = section_heads_,
                          .last_section = last_section_,
                          .heads_kv = static_cast<int32_t>(problem_.heads_kv)};
  const BackwardWorkspace workspace{
      .stats = at(0),
      .dq = at(dq_),
      .turn = counters_at(turn_),
      .front = counters_at(front_),
      .in_rows = shape_.in_rows,
      .row_tile = pack_.at<TileExtent>(row_tile_),
      .masks = static_cast<int32_t>(problem_.masks->size()),
      .heads_before = static_cast<int32_t>(pass_ctas > 0 ? jobs.heads_of(0) * group : problem_.heads_q),
      .heads_after = static_cast<int32_t>(problem_.heads_q) -
                     (pass_ctas > 0 ? jobs.first_head(last_section_) * group : 0),
      .zeros = {{counters_at(counters_), kBackwardCounters + 2 * (last_section_ + 1)},
                {counters_at(parts_), parts_ > 0 ? problem_.heads_kv * key_tiles_ * 2 : 0}},
      .rows = shape_.rows,
      .row_tiles = row_tiles_};
  prepare_backward(problem_, args, workspace, stream);

  BackwardParams params;
  params.q = key_map(args.q, shape_.rows);
  params.dout = key_map(args.dout, shape_.rows);
  params.k = key_map(args.k, shape_.keys);
  params.v = key_map(args.v, shape_.keys);
  params.stats = workspace.stats;
  params.dq = workspace.dq;
  params.dkv = dkv_ > 0 ? at(dkv_) : nullptr;
  params.dk = view_of(args.dk);
  params.dv = view_of(args.dv);
  params.fp32_output = args.dk.dtype == DType::kF32;
  params.work = pack_.at<BackwardWork>(work_);
  params.key_tile = pack_.at<BackwardKeyTile>(key_tile_);
  params.row_tile = workspace.row_tile;
  params.runs = pack_.at<DeviceRun>(runs_);
  params.partials = pack_.at<DevicePartial>(partials_);
  params.spans = pack_.at<uint32_t>(spans_);
  if (ordered) params.turns = pack_.at<int32_t>(turns_);
  if (streams_ > 0) params.next_item = pack_.at<int32_t>(next_item_);
  params.streams = streams_;
  params.turns_of_head = turns_of_head_;
  params.descending = walk_.descending;
  params.by_rows = walk_.by_rows;
  params.turn = workspace.turn;
  params.parts = counters_at(parts_);
  params.front = workspace.front;
  params.join_tiles = shape_.join_tiles;
  params.key_tiles = key_tiles_;
  params.row_tiles = row_tiles_;
  params.per_head_masks = workspace.masks > 1;
  params.group = group;
  params.heads_kv = static_cast<int32_t>(problem_.heads_kv);
  params.section_heads = section_heads_;
  params.last_section = last_section_;
  params.items_per_head = items_per_head_;
  params.items_per_mask = mask_items_;
  params.last_list = last_list_;
  params.items = items_per_head_ * params.heads_kv;
  params.tokens_q = static_cast<int32_t>(problem_.tokens_q);
  params.tokens_kv = static_cast<int32_t>(problem_.tokens_kv);
  params.scale = problem_.softmax_scale();
  params.scale_log2 = params.scale * std::numbers::log2e_v<float>;
  params.counters = counters_at(counters_);
  if (pass_ctas > 0) {
    params.pass_ctas = pass_ctas;
    params.prepared = params.counters + kBackwardCounters;
    params.added = params.prepared + last_section_ + 1;
    params.o = key_map(args.o, shape_.rows);
    params.lse = args.lse;
    params.dlse = args.dlse;
    params.dq_rows = view_of(args.dq);
  }
  if (shape_.large)
    launch_large_backward(problem_, shape_, params, device_, stream);
  else
    launch_backward(problem_.head_dim, problem_.dtype, shape_, params, device_, stream);

  finish_backward(problem_, args, workspace, stream);
}

}  // namespace longspan::sm90
