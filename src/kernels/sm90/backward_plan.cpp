#include "kernels/sm90/backward_plan.h"

#include <algorithm>
#include <numbers>

#include "base/error.h"
#include "kernels/sm90/backward_launch.h"
#include "kernels/sm90/backward_passes.h"
#include "kernels/sm90/tensor_map.h"

namespace longspan::sm90 {
namespace {

constexpr int64_t kBlocksOfHead = 16;
constexpr int64_t kLastRounds = 4;

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
  workspace_bytes_ = dq_ + aligned(rows * static_cast<size_t>(problem.head_dim) * sizeof(float));
  if (shape.store == BackwardStore::kOrdered) {
    const auto heads = static_cast<int32_t>(problem.group_size() / shape.parts);
    const auto at_once = static_cast<int32_t>(std::max<int64_t>(workers() / section_units(), 1));
    const BackwardTurns order = order_additions(map, shape.rows, at_once, heads);
    std::vector<int32_t> packed(order.first.begin(), order.first.end());
    packed.insert(packed.end(), order.turns.begin(), order.turns.end());
    packed.resize(packed.size() + 32);  // a warp reads 32 at a time
    turns_ = Buffer(packed.size() * sizeof(int32_t), device);
    copy_bytes(turns_.data(), turns_.kind(), packed.data(), DeviceKind::kCpu, turns_.bytes());
    first_turns_ = order.first.size();
    descending_ = order.descending;
  }
  if (shape.store == BackwardStore::kOrdered || shape.store == BackwardStore::kClaimed) {
    turn_ = workspace_bytes_;
    turn_bytes_ = (static_cast<size_t>(problem.heads_q) * static_cast<size_t>(row_tiles_) +
                   static_cast<size_t>(problem.heads_kv) * static_cast<size_t>(map.row_tiles)) *
                  2 * sizeof(int32_t);
    workspace_bytes_ += aligned(turn_bytes_);
  }
  dkv_ = workspace_bytes_;
  if (shape.parts > 1)
    workspace_bytes_ += static_cast<size_t>(map_.view().row_tiles * shape.keys) *
                        static_cast<size_t>(problem.heads_kv * problem.head_dim) * 2 * sizeof(float);
}

// Blocks that work on neighbouring key tiles of a head meet the same rows of q, do and dq at about the same
// time, and find them in L2. With more than some 16 of them they wait for each other's additions; with fewer,
// each row comes from memory more often.
int32_t BackwardPlan::section_units() const {
  const int64_t units = problem_.heads_kv * shape_.parts, heads = problem_.group_size() / shape_.parts;
  const int64_t wanted =
      shape_.section_units > 0 ? shape_.section_units : workers() / (kBlocksOfHead * heads);
  return static_cast<int32_t>(std::clamp<int64_t>(wanted, 1, units));
}

int64_t BackwardPlan::workers() const {
  return int64_t{device_.units} * (128 / shape_.keys);
}

// The last section has the items of several rounds: the longest come first, the shortest fill the gaps.
int32_t BackwardPlan::last_section() const {
  const int64_t key_tiles = map_.view().row_tiles, units = problem_.heads_kv * shape_.parts;
  const int64_t tail = std::min((kLastRounds * workers() + key_tiles - 1) / key_tiles, units);
  return static_cast<int32_t>((units - tail) / section_units());
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
                                    .turn = turn_bytes_ > 0 ? reinterpret_cast<int32_t*>(at(turn_)) : nullptr,
                                    .turn_bytes = turn_bytes_,
                                    .claimed = turn_bytes_ > 0,
                                    .transposed_dq = shape_.transposed_dq,
                                    .dq_columns = shape_.dq_columns(problem_.head_dim),
                                    .rows = shape_.rows,
                                    .row_tiles = row_tiles_,
                                    .keys = shape_.keys,
                                    .key_tiles = map.row_tiles};
  prepare_backward(problem_, args, workspace, stream);

  BackwardParams params;
  params.q = key_map(args.q, shape_.rows);
  params.dout = key_map(args.dout, shape_.rows);
  params.k = key_map(args.k, shape_.keys);
  params.v = key_map(args.v, shape_.keys);
  params.stats = workspace.stats;
  params.dq = workspace.dq;
  params.dkv = workspace.dkv;
  params.dk = view_of(args.dk);
  params.dv = view_of(args.dv);
  params.fp32_output = args.dk.dtype == DType::kF32;
  params.work = map.work;
  params.runs = map.runs;
  params.partials = map.partials;
  params.spans = map.spans;
  if (ordered) {
    params.first_turn = turns_.as<uint32_t>();
    params.turns = turns_.as<int32_t>() + first_turns_;
    params.descending = descending_;
  }
  params.turn = workspace.turn;
  if (workspace.turn != nullptr) params.dkv_turn = workspace.turn + problem_.heads_q * row_tiles_ * 2;
  params.key_tiles = map.row_tiles;
  params.row_tiles = row_tiles_;
  params.per_head_masks = problem_.masks->size() > 1;
  params.parts = shape_.parts;
  params.heads_per_item = static_cast<int32_t>(problem_.group_size() / shape_.parts);
  params.units = static_cast<int32_t>(problem_.heads_kv) * shape_.parts;
  params.section_units = section_units();
  params.last_section = last_section();
  params.items = map.row_tiles * params.units;
  params.tokens_kv = static_cast<int32_t>(problem_.tokens_kv);
  params.scale = problem_.softmax_scale();
  params.scale_log2 = params.scale * std::numbers::log2e_v<float>;
  params.counters = map.counters;
  launch_backward(problem_.head_dim, problem_.dtype, shape_, params, device_, stream);

  finish_backward(problem_, args, workspace, stream);
}

}  // namespace longspan::sm90
