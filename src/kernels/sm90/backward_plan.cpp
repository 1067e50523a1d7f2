#include "kernels/sm90/backward_plan.h"

#include <algorithm>
#include <cstdint>
#include <numbers>
#include <span>

#include "base/error.h"
#include "kernels/sm90/backward_launch.h"
#include "kernels/sm90/backward_passes.h"
#include "kernels/sm90/backward_turns.h"
#include "kernels/sm90/tensor_map.h"

namespace longspan::sm90 {
namespace {

constexpr int64_t kBlocksOfHead = 16;
constexpr int64_t kLastRounds = 4;
constexpr int64_t kItemsOfBlock = 12, kFewestTiles = 24;

size_t aligned(size_t bytes) {
  return (bytes + 255) / 256 * 256;
}

GradientView view_of(const TensorView& tensor) {
  return {tensor.data, tensor.token_stride, tensor.head_stride};
}

// Gradients are written 16 bytes at a time; what is read has descriptors that check as much.
void check_alignment(const char* name, const TensorView& tensor) {
  const auto fits = [&](int64_t stride, int64_t count) {
    return count <= 1 || stride * static_cast<int64_t>(size_of(tensor.dtype)) % 16 == 0;
  };
  LONGSPAN_CHECK_INPUT(
      reinterpret_cast<uintptr_t>(tensor.data) % 16 == 0 && fits(tensor.token_stride, tensor.tokens) &&
          fits(tensor.head_stride, tensor.heads),
      "{} at {}, strides of {} and {} elements: each token and head must begin at a multiple "
      "of 16 bytes",
      name, tensor.data, tensor.token_stride, tensor.head_stride);
}

int64_t tiles_of(const CompiledMap& map, const WorkRow& row) {
  int64_t tiles = 0;
  for (int32_t r = 0; r < row.runs; ++r)
    tiles += std::max(map.runs[row.first_run + static_cast<uint32_t>(r)].code, 1);
  return tiles;
}

// In which order key tiles are handed out.
enum class KeyOrder { kByKeys, kFromLastKey, kHeaviestFirst, kLightestFirst };

void sort_keys(CompiledMap& map, KeyOrder order) {
  std::vector<int64_t> tiles(static_cast<size_t>(map.row_tiles));
  for (auto first = map.work.begin(); first != map.work.end(); first += map.row_tiles) {
    const auto last = first + map.row_tiles;
    for (auto row = first; row != last; ++row)
      tiles[static_cast<size_t>(row->row_tile)] = tiles_of(map, *row);
    std::sort(first, last, [&](const WorkRow& a, const WorkRow& b) {
      const int64_t more = tiles[static_cast<size_t>(a.row_tile)] - tiles[static_cast<size_t>(b.row_tile)];
      if (order == KeyOrder::kFromLastKey) return a.row_tile > b.row_tile;
      if (order == KeyOrder::kHeaviestFirst && more != 0) return more > 0;
      if (order == KeyOrder::kLightestFirst && more != 0) return more < 0;
      return a.row_tile < b.row_tile;
    });
  }
}

int64_t longest_column(const CompiledMap& map) {
  int64_t longest = 0;
  for (const WorkRow& row : map.work) longest = std::max(longest, tiles_of(map, row));
  return longest;
}

}  // namespace

BackwardPlan::BackwardPlan(const Problem& problem, const BackwardShape& shape, const Device& device)
    : problem_(problem), shape_(shape), device_(device) {
  BackwardGrid grid = lay_tiles(*problem.masks, shape.tile_shape(), shape.aligned);
  row_tiles_ = static_cast<int32_t>(grid.rows.size() / problem.masks->size());
  key_tiles_ = grid.map.row_tiles;
  const bool ordered = shape.store == BackwardStore::kOrdered;
  BackwardItems items = ordered ? arrange_in_order(grid) : arrange(grid);
  items_per_head_ = items.per_list;
  BackwardTurns order;
  if (ordered) {
    order = order_additions(grid.map, shape.rows, walk_.descending);
    order.turns.resize(order.turns.size() + 32);  // a warp reads 32 at a time
    for (size_t i = 0; i < items.work.size(); ++i) {
      const size_t mask = i / static_cast<size_t>(items.per_list * items.lists);
      items.work[i].first_turn =
          order.first[mask * static_cast<size_t>(key_tiles_) + static_cast<size_t>(items.work[i].key_tile)];
    }
  } else if (items.lists > 1) {
    last_list_ = items.per_list;
  }
  mask_items_ = items.per_list * items.lists;
  work_ = pack_.add(items.work);
  key_tile_ = pack_.add(items.key_tiles);
  row_tile_ = pack_.add(grid.rows);
  runs_ = pack_.add(grid.map.runs);
  partials_ = pack_.add(grid.map.partials);
  spans_ = pack_.add(grid.map.spans);
  turns_ = pack_.add(order.turns);
  counters_ = pack_.add_zeros(2 * sizeof(int32_t));
  pack_.upload(device);
  lay_out_workspace(items.shared);
}

BackwardItems BackwardPlan::arrange(BackwardGrid& grid) {
  if (shape_.most_tiles > 0) sort_keys(grid.map, KeyOrder::kByKeys);
  return share_out(grid, choose_sharing(grid.map));
}

// Additions to a row tile go by the order of key tiles, each waiting for the ones before: an order in which
// long columns run ahead of the short ones that they would hold up, or behind them, lets all go on. And parts
// of a key tile wait for each other's dk and dv. What a simulation finds best of some orders and sizes.
BackwardItems BackwardPlan::arrange_in_order(BackwardGrid& grid) {
  BackwardItems best;
  std::vector<WorkRow> best_order;
  double least = 0;
  const auto attempt = [&](const BackwardSharing& sharing) {
    BackwardItems items = share_out(grid, sharing);
    const TimedWalk walk =
        choose_walk(grid.map, std::span(items.work).first(static_cast<size_t>(items.per_list)), shape_.rows,
                    static_cast<int32_t>(problem_.group_size()),
                    static_cast<int32_t>(std::max<int64_t>(workers() / section_heads(), 1)));
    if (!best_order.empty() && walk.time >= 0.98 * least) return;
    least = walk.time, best = std::move(items), best_order = grid.map.work, walk_ = walk.walk;
  };
  using enum KeyOrder;
  const KeyOrder usual = shape_.most_tiles > 0 ? kByKeys : kHeaviestFirst;
  for (const KeyOrder order : {usual, kByKeys, kFromLastKey, kHeaviestFirst, kLightestFirst}) {
    if (order == usual && !best_order.empty()) continue;
    sort_keys(grid.map, order);
    attempt(choose_sharing(grid.map));
  }
  grid.map.work = best_order;
  BackwardSharing sharing = choose_sharing(grid.map);
  if (sharing.most_tiles > 0) {
    sharing.most_tiles *= 2;
    attempt(sharing);
  }
  return best;
}

void BackwardPlan::lay_out_workspace(bool shared) {
  const auto heads_q = static_cast<size_t>(problem_.heads_q),
             heads_kv = static_cast<size_t>(problem_.heads_kv);
  const auto head_dim = static_cast<size_t>(problem_.head_dim);
  const size_t tiles = heads_q * static_cast<size_t>(row_tiles_);
  const size_t key_tiles = heads_kv * static_cast<size_t>(key_tiles_);
  const auto take = [&](size_t bytes) {
    const size_t offset = workspace_bytes_;
    workspace_bytes_ += aligned(bytes);
    return offset;
  };
  const bool in_turns = shape_.store != BackwardStore::kRegisters;
  const size_t rows = static_cast<size_t>(shape_.rows) * tiles;
  take(rows * 2 * sizeof(float));
  dq_ = take((shape_.in_rows ? heads_q * static_cast<size_t>(problem_.tokens_q) : rows) * head_dim *
             sizeof(float));
  if (in_turns) turn_ = take((tiles + key_tiles) * 2 * sizeof(int32_t));
  if (shared) dkv_ = take(key_tiles * static_cast<size_t>(shape_.keys) * head_dim * 2 * sizeof(float));
}

// Blocks that work on neighbouring key tiles of a head meet the same rows of q, do and dq at about the same
// time, and find them in L2. With more than some 16 of them they wait for each other's additions; with fewer,
// each row comes from memory more often. So this many query heads are worked on together.
int64_t BackwardPlan::wanted_heads() const {
  const int64_t of_item = problem_.group_size() / shape_.parts;
  if (shape_.section_units > 0) return shape_.section_units * of_item;
  return std::max(workers() / kBlocksOfHead, of_item);
}

int64_t BackwardPlan::section_heads() const {
  return std::clamp<int64_t>(wanted_heads() / problem_.group_size(), 1, problem_.heads_kv);
}

int64_t BackwardPlan::workers() const {
  return int64_t{device_.units} * (128 / shape_.keys);
}

BackwardSharing BackwardPlan::choose_sharing(const CompiledMap& map) const {
  const int64_t group = problem_.group_size();
  BackwardSharing sharing;
  sharing.group = static_cast<int32_t>(group);
  sharing.parts = shape_.parts;
  sharing.heads_at_once = static_cast<int32_t>(std::min(wanted_heads(), group));
  const int64_t last_heads = (kLastRounds * workers() + map.row_tiles - 1) / std::max(map.row_tiles, 1);
  sharing.last_heads = static_cast<int32_t>(std::clamp<int64_t>(last_heads, 1, group));
  // No item longer than some part of a block's work; but an item's beginning and end take as long as two or
  // three tiles.
  int64_t tiles = 0;
  for (const DeviceRun& run : map.runs) tiles += std::max(run.code, 1);
  const int64_t of_block =
      tiles * problem_.heads_q / static_cast<int64_t>(problem_.masks->size()) / workers();
  if (shape_.most_tiles > 0) {
    sharing.most_tiles = std::clamp<int64_t>(of_block / kItemsOfBlock, kFewestTiles, shape_.most_tiles);
    // Items of whole groups need no sums of dk and dv.
    if (longest_column(map) * group <= of_block / kItemsOfBlock) sharing.most_tiles = 0;
  }
  // Additions in order go by key tiles: so that none waits for an item that is not yet handed out, all items
  // of a key tile come before the next one's.
  if (shape_.most_tiles > 0)
    sharing.group_items = shape_.store == BackwardStore::kOrdered ? 1 : static_cast<int32_t>(workers());
  return sharing;
}

void BackwardPlan::run(const BackwardArgs& args, cudaStream_t stream) {
  check_alignment("dq", args.dq);
  check_alignment("dk", args.dk);
  check_alignment("dv", args.dv);
  const bool ordered = shape_.store == BackwardStore::kOrdered;
  const auto at = [&](size_t offset) {
    return reinterpret_cast<float*>(static_cast<char*>(args.workspace) + offset);
  };
  int32_t* turns = turn_ > 0 ? reinterpret_cast<int32_t*>(at(turn_)) : nullptr;
  const BackwardWorkspace workspace{
      .stats = at(0),
      .dq = at(dq_),
      .dkv = dkv_ > 0 ? at(dkv_) : nullptr,
      .turn = turns,
      .dkv_turn = turns != nullptr ? turns + problem_.heads_q * row_tiles_ * 2 : nullptr,
      .in_rows = shape_.in_rows,
      .row_tile = pack_.at<TileExtent>(row_tile_),
      .key_tile = pack_.at<BackwardKeyTile>(key_tile_),
      .masks = static_cast<int32_t>(problem_.masks->size()),
      .rows = shape_.rows,
      .row_tiles = row_tiles_,
      .keys = shape_.keys,
      .key_tiles = key_tiles_};
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
  params.work = pack_.at<BackwardWork>(work_);
  params.key_tile = workspace.key_tile;
  params.row_tile = workspace.row_tile;
  params.runs = pack_.at<DeviceRun>(runs_);
  params.partials = pack_.at<DevicePartial>(partials_);
  params.spans = pack_.at<uint32_t>(spans_);
  if (ordered) params.turns = pack_.at<int32_t>(turns_);
  params.descending = walk_.descending;
  params.by_rows = walk_.by_rows;
  params.turn = workspace.turn;
  params.dkv_turn = workspace.dkv_turn;
  params.key_tiles = key_tiles_;
  params.row_tiles = row_tiles_;
  params.per_head_masks = workspace.masks > 1;
  params.group = static_cast<int32_t>(problem_.group_size());
  params.heads_kv = static_cast<int32_t>(problem_.heads_kv);
  const int64_t section = section_heads();
  const int64_t last = std::clamp<int64_t>(
      (kLastRounds * workers() + items_per_head_ - 1) / std::max(items_per_head_, 1), 1, problem_.heads_kv);
  params.section_heads = static_cast<int32_t>(section);
  params.last_section = static_cast<int32_t>((problem_.heads_kv - last) / section);
  params.items_per_head = items_per_head_;
  params.items_per_mask = mask_items_;
  params.last_list = last_list_;
  params.items = items_per_head_ * params.heads_kv;
  params.tokens_q = static_cast<int32_t>(problem_.tokens_q);
  params.tokens_kv = static_cast<int32_t>(problem_.tokens_kv);
  params.scale = problem_.softmax_scale();
  params.scale_log2 = params.scale * std::numbers::log2e_v<float>;
  params.counters = pack_.at<int32_t>(counters_);
  launch_backward(problem_.head_dim, problem_.dtype, shape_, params, device_, stream);

  finish_backward(problem_, args, workspace, stream);
}

}  // namespace longspan::sm90
