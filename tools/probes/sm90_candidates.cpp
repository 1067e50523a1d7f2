#include "sm90_candidates.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string_view>
#include <unordered_set>

#include <fmt/format.h>

#include "base/error.h"
#include "mask/block_alignment.h"
#include "plan_hash.h"

namespace longspan {
namespace {

using namespace sm90;

// Adds candidates whose plans differ from all before.
template <class Shape>
class List {
 public:
  explicit List(std::function<Candidate<Shape>(const Shape&, std::string)> make) : make_(std::move(make)) {}
  void add(const Shape& shape, const std::string& by) {
    Candidate<Shape> candidate = make_(shape, by);
    if (seen_.insert(candidate.hash).second) result.push_back(std::move(candidate));
  }
  void leave_out(const Candidate<Shape>& candidate) { seen_.insert(candidate.hash); }
  std::vector<Candidate<Shape>> result;

 private:
  std::function<Candidate<Shape>(const Shape&, std::string)> make_;
  std::unordered_set<uint64_t> seen_;
};

std::vector<int32_t> divisors(int64_t number) {
  std::vector<int32_t> result;
  for (int64_t d = 1; d <= number; ++d)
    if (number % d == 0) result.push_back(static_cast<int32_t>(d));
  return result;
}

constexpr std::string_view kStores[] = {"registers", "added", "claimed", "ordered"};

// Sums of dq in token rows or as threads hold them, in tiles on an even grid or cut at edges of bands.
constexpr std::string_view kGrids[2][2] = {{"held", "held-cut"}, {"rows", "cut"}};

// With every choice made: the split, and the CTAs for passes.
BackwardCandidate made(const Problem& problem, BackwardShape shape, std::string by, const Device& device) {
  const BackwardArrangement all = arrange_backward(problem, shape, device.units);
  const uint64_t hash = hash_of(all);
  shape = all.shape;
  shape.split = all.split;
  shape.pass_ctas = all.pass_ctas;
  const BackwardSplit& s = all.split;
  std::string name = fmt::format(
      "{}x{} {} {} P={} T={} o={} g={} r={} h={} k={}{} s={} N={}{}{}", shape.rows, shape.keys,
      kStores[static_cast<int>(shape.store)], kGrids[shape.in_rows][shape.aligned], s.parts, s.most_tiles,
      static_cast<int>(s.order), s.group_items, s.last_rounds, s.kv_heads,
      2 * s.walk.by_rows + s.walk.descending, s.by_time ? "t" : "", shape.section_units, shape.pass_ctas,
      s.last_pieces > 1 ? fmt::format(" c={}", s.last_pieces) : "", all.items.shared ? "" : " whole");
  return {std::move(name), std::move(by), shape, hash};
}

// Tiles and dQ accumulation that have an instance.
std::vector<BackwardShape> tiles_of(const Problem& problem, const BackwardShape& chosen) {
  std::vector<BackwardShape> result;
  const auto add = [&](int rows, int keys, BackwardStore store, bool in_rows, bool aligned = false) {
    BackwardShape shape = chosen;
    shape.split.reset();
    shape.rows = rows, shape.keys = keys, shape.store = store, shape.in_rows = in_rows;
    shape.aligned = in_rows || aligned;
    shape.pass_ctas = can_do_passes(problem, shape) ? kAsSuits : 0;
    result.push_back(shape);
  };
  using enum BackwardStore;
  add(chosen.rows, chosen.keys, chosen.store, chosen.in_rows, chosen.aligned);
  if (problem.deterministic) {
    if (problem.head_dim == 128)
      add(64, 128, kOrdered, true), add(64, 128, kOrdered, false), add(80, 128, kOrdered, false);
    return result;
  }
  if (chosen.large) return result;  // one instance
  add(64, 128, kClaimed, true);
  if (problem.head_dim == 128) {
    add(64, 128, kClaimed, false), add(64, 128, kAdded, true), add(64, 128, kAdded, false);
    add(80, 128, kAdded, false), add(80, 128, kAdded, false, true), add(64, 128, kClaimed, false, true);
  } else if (problem.dtype == DType::kBF16) {
    add(128, 128, kClaimed, true), add(128, 128, kClaimed, false), add(128, 128, kAdded, false);
    add(64, 192, kClaimed, true), add(64, 192, kAdded, true), add(64, 192, kAdded, false);
  }
  return result;
}

// Splits and orders for any tile.
std::vector<BackwardSplit> splits_of(const Problem& problem, int64_t workers) {
  std::vector<BackwardSplit> result;
  const auto across = static_cast<int32_t>(workers);
  for (const int32_t parts : divisors(problem.group_size())) {
    for (const int rounds : {1, 2}) result.push_back({.parts = parts, .last_rounds = rounds});
    for (const int64_t most : {0, 160})
      result.push_back(
          {.parts = parts, .most_tiles = most, .order = KeyOrder::kByKeys, .group_items = across});
    result.push_back(
        {.parts = parts, .most_tiles = 160, .order = KeyOrder::kHeaviestFirst, .group_items = 32});
    result.push_back(
        {.parts = parts, .most_tiles = 120, .order = KeyOrder::kByKeys, .group_items = 32, .last_rounds = 2});
  }
  result.push_back({.most_tiles = 80, .order = KeyOrder::kByKeys, .group_items = across, .last_rounds = 2});
  return result;
}

}  // namespace

BackwardCandidate backward_candidate(const Problem& problem, const Device& device, const std::string& name) {
  BackwardShape shape = choose_backward_shape(problem);
  shape.any_tile = false;
  BackwardSplit split;
  char store[16], grid[16], walk[16];
  int order = 0;
  const int read = std::sscanf(
      name.c_str(), "%dx%d %15s %15s P=%d T=%ld o=%d g=%d r=%d h=%d k=%15s s=%d N=%d c=%d", &shape.rows,
      &shape.keys, store, grid, &split.parts, &split.most_tiles, &order, &split.group_items,
      &split.last_rounds, &split.kv_heads, walk, &shape.section_units, &shape.pass_ctas, &split.last_pieces);
  const auto kind = std::ranges::find(kStores, std::string_view(store));
  bool known_grid = false;
  for (const bool in_rows : {false, true})
    for (const bool aligned : {false, true})
      if (kGrids[in_rows][aligned] == grid)
        known_grid = true, shape.in_rows = in_rows, shape.aligned = aligned;
  LONGSPAN_CHECK_INPUT(read >= 13 && kind != std::end(kStores) && known_grid,
                       "'{}' is no candidate of a backward pass", name);
  shape.store = static_cast<BackwardStore>(kind - std::begin(kStores));
  split.order = static_cast<KeyOrder>(order);
  split.walk = {walk[0] == '1' || walk[0] == '3', walk[0] >= '2'};
  split.by_time = walk[1] == 't';
  shape.split = split;
  return made(problem, shape, "named", device);
}

std::vector<BackwardCandidate> backward_candidates(const Problem& problem, const Device& device) {
  List<BackwardShape> list(
      [&](const BackwardShape& s, std::string by) { return made(problem, s, by, device); });
  list.add(choose_backward_shape(problem), "chosen");
  for (const BackwardShape& tile : tiles_of(problem, list.result.front().shape)) {
    list.add(tile, "tile");
    if (problem.deterministic) continue;
    for (const BackwardSplit& split : splits_of(problem, tile.workers(device.units))) {
      BackwardShape shape = tile;
      shape.split = split;
      list.add(shape, "tile and split");
      if (split.group_items == 0)
        shape.section_units = shape.section_units == 0 ? 2 : 0, list.add(shape, "tile and split");
    }
  }
  return std::move(list.result);
}

std::vector<BackwardCandidate> backward_changes(const Problem& problem, const Device& device,
                                                const BackwardCandidate& of) {
  List<BackwardShape> list(
      [&](const BackwardShape& s, std::string by) { return made(problem, s, by, device); });
  list.leave_out(of);
  const auto change = [&](const char* by, const std::function<void(BackwardShape&)>& to) {
    BackwardShape shape = of.shape;
    to(shape);
    list.add(shape, by);
  };
  const BackwardShape& shape = of.shape;
  if (can_do_passes(problem, shape))
    for (const int ctas : {0, 4, 6, 8, 11})
      change("pass CTAs", [&](BackwardShape& s) { s.pass_ctas = ctas; });
  for (const int units : {0, 1, 2, 4}) change("sections", [&](BackwardShape& s) { s.section_units = units; });
  if (!shape.large)
    for (const bool aligned : {false, true}) change("edges", [&](BackwardShape& s) { s.aligned = aligned; });
  for (const int rounds : {0, 1, 2, 4})
    change("last rounds", [&](BackwardShape& s) { s.split->last_rounds = rounds; });
  for (const int64_t most : {0, 60, 90, 110, 240, 640})
    change("most tiles", [&](BackwardShape& s) { s.split->most_tiles = most; });
  for (const int32_t group : {8, 32, 132, 264})
    if (shape.split->group_items > 0)
      change("group items", [&](BackwardShape& s) { s.split->group_items = group; });
  for (const KeyOrder order : {KeyOrder::kByKeys, KeyOrder::kHeaviestFirst, KeyOrder::kFromLastKey})
    change("order", [&](BackwardShape& s) { s.split->order = order; });
  if (problem.deterministic) {
    for (const int walk : {0, 1, 2, 3})
      change("walk", [&](BackwardShape& s) { s.split->walk = {(walk & 1) != 0, (walk & 2) != 0}; });
    for (const int32_t parts : divisors(problem.group_size()))
      change("parts", [&](BackwardShape& s) { s.split->parts = parts; });
    if (shape.rows == 64)
      for (const bool by_time : {false, true})
        change("by time", [&](BackwardShape& s) { s.split->by_time = by_time; });
  }
  return std::move(list.result);
}

std::vector<BackwardCandidate> backward_ablations(const Problem& problem, const Device& device) {
  List<BackwardShape> list(
      [&](const BackwardShape& s, std::string by) { return made(problem, s, by, device); });
  list.add(choose_backward_shape(problem), "chosen");
  const BackwardShape chosen = list.result.front().shape;  // with its split
  BackwardShape tile = chosen;
  tile.split.reset();
  tile.pass_ctas = can_do_passes(problem, tile) ? kAsSuits : 0;
  // Another tile, cut or dQ accumulation, if it has an instance.
  const auto without = [&](bool used, const char* mechanism, const auto& change) {
    if (!used) return;
    BackwardShape shape = tile;
    change(shape);
    const auto instance = [&](const BackwardShape& s) {
      return s.rows == shape.rows && s.keys == shape.keys && s.store == shape.store &&
             s.in_rows == shape.in_rows;
    };
    if (std::ranges::none_of(tiles_of(problem, tile), instance)) return;
    shape.pass_ctas = can_do_passes(problem, shape) ? kAsSuits : 0;
    list.add(shape, mechanism);
  };
  using enum BackwardStore;
  without(tile.rows == 80, "80 rows", [](BackwardShape& s) { s.rows = 64; });
  without(tile.keys == 192 || tile.rows == 128, "192 keys or 128 rows", [](BackwardShape& s) {
    s.rows = 64, s.keys = 128, s.store = kClaimed, s.in_rows = s.aligned = true;
  });
  without(tile.store == kClaimed, "claims", [](BackwardShape& s) { s.store = kAdded; });
  without(tile.in_rows, "sums in token rows", [](BackwardShape& s) { s.in_rows = s.aligned = false; });
  without(!tile.large && tile.aligned, "tiles cut at edges", [](BackwardShape& s) { s.aligned = false; });

  // The same tile and split, with one choice less.
  const auto less = [&](bool used, const char* mechanism, const auto& change) {
    if (!used) return;
    BackwardShape shape = chosen;
    change(shape);
    list.add(shape, mechanism);
  };
  const BackwardSplit& split = *chosen.split;
  less(chosen.pass_ctas > 0, "CTAs for the passes", [](BackwardShape& s) { s.pass_ctas = 0; });
  less(split.walk != BackwardWalk{}, "walk", [](BackwardShape& s) { s.split->walk = {}; });
  less(split.parts > 1, "parts", [](BackwardShape& s) { s.split->parts = 1; });
  less(split.most_tiles > 0, "most tiles", [](BackwardShape& s) { s.split->most_tiles = 0; });
  less(split.last_rounds > 0, "last rounds", [](BackwardShape& s) { s.split->last_rounds = 0; });
  less(split.last_pieces > 1, "last pieces", [](BackwardShape& s) { s.split->last_pieces = 1; });
  less(split.by_time, "by time", [](BackwardShape& s) { s.split->by_time = false; });
  return std::move(list.result);
}

namespace {

bool has_instance(const Problem& problem, const ForwardShape& s) {
  if (s.tile_shape().rows > kMostTileRows) return false;
  if (is_large(problem)) return s.columns == 80 && s.warpgroups == (problem.head_dim == 256 ? 2 : 3);
  if (s.warpgroups == 4) return problem.head_dim == 64 && s.columns == 64;
  if (problem.head_dim == 64)
    return s.columns == 128 && (s.warpgroups == 2 || (s.piece == 128 && s.streams == 1));
  if (s.warpgroups == 3) return s.columns == 80 && s.streams == 1;
  return s.warpgroups == 2 && s.columns == 128;
}

ForwardCandidate made(const Problem& problem, const ForwardShape& s, std::string by, const Device& device) {
  std::string name =
      fmt::format("{}x{} piece={} streams={} pack={} {}{} sections={} heavy={:d}", s.tile_rows(), s.columns,
                  s.piece, s.streams, s.pack, s.row_tiles == RowTiles::kEven ? "even" : "blocks",
                  s.paired ? " paired" : "", s.section_heads, s.heavy_first);
  return {std::move(name), std::move(by), s, hash_of(problem, s, device)};
}

}  // namespace

ForwardCandidate forward_candidate(const Problem& problem, const Device& device, const std::string& name) {
  ForwardShape shape = choose_forward_shape(problem, device);
  const auto has = [&](const char* word) { return name.find(word) != std::string::npos; };
  int rows = 0, heavy = 0;
  const size_t sections = name.find("sections=");
  const int read = std::sscanf(name.c_str(), "%dx%d piece=%d streams=%d pack=%d", &rows, &shape.columns,
                               &shape.piece, &shape.streams, &shape.pack);
  LONGSPAN_CHECK_INPUT(
      read == 5 && sections != std::string::npos &&
          std::sscanf(name.c_str() + sections, "sections=%d heavy=%d", &shape.section_heads, &heavy) == 2,
      "'{}' is no candidate of a forward pass", name);
  shape.warpgroups = rows * shape.streams / 64;
  shape.row_tiles = has(" blocks") ? RowTiles::kOfBlocks : RowTiles::kEven;
  shape.paired = has(" paired");
  shape.heavy_first = heavy != 0;
  return made(problem, shape, "named", device);
}

std::vector<ForwardCandidate> forward_candidates(const Problem& problem, const Device& device) {
  List<ForwardShape> list(
      [&](const ForwardShape& s, std::string by) { return made(problem, s, by, device); });
  const ForwardShape chosen = choose_forward_shape(problem, device);
  list.add(chosen, "chosen");
  const auto add = [&](ForwardShape shape, int columns, int piece, int streams, int warpgroups) {
    shape.columns = columns, shape.piece = piece, shape.streams = streams, shape.warpgroups = warpgroups;
    if (has_instance(problem, shape)) list.add(shape, "tile");
  };
  const int64_t block = problem.head_dim > 128 ? 0 : block_alignment(*problem.masks, 64, 64);
  for (int pack = 1; pack <= 8; pack *= 2) {
    if (problem.group_size() % pack != 0) continue;
    for (const RowTiles row_tiles : {RowTiles::kEven, RowTiles::kOfBlocks}) {
      ForwardShape shape = chosen;
      shape.pack = pack, shape.row_tiles = row_tiles;
      add(shape, 80, 80, 1, 3), add(shape, 80, 80, 1, 2), add(shape, 128, 128, 1, 2),
          add(shape, 128, 128, 1, 3), add(shape, 64, 64, 1, 4);
      if (block >= 64 && row_tiles == RowTiles::kEven && pack <= 2) add(shape, 128, 64, pack == 2 ? 1 : 2, 2);
    }
  }
  return std::move(list.result);
}

std::vector<ForwardCandidate> forward_changes(const Problem& problem, const Device& device,
                                              const ForwardCandidate& of) {
  List<ForwardShape> list(
      [&](const ForwardShape& s, std::string by) { return made(problem, s, by, device); });
  list.leave_out(of);
  for (const int heads : {1, 2, static_cast<int>(problem.heads_kv)}) {
    ForwardShape shape = of.shape;
    shape.section_heads = heads;
    list.add(shape, "sections");
  }
  ForwardShape shape = of.shape;
  shape.heavy_first = !shape.heavy_first;
  list.add(shape, "heavy first");
  if (of.shape.paired) shape = of.shape, shape.paired = false, list.add(shape, "pairs");
  return std::move(list.result);
}

std::vector<ForwardCandidate> forward_ablations(const Problem& problem, const Device& device) {
  List<ForwardShape> list(
      [&](const ForwardShape& s, std::string by) { return made(problem, s, by, device); });
  const ForwardShape chosen = choose_forward_shape(problem, device);
  list.add(chosen, "chosen");
  const auto without = [&](bool used, const char* mechanism, const auto& change) {
    if (!used) return;
    ForwardShape shape = chosen;
    change(shape);
    if (has_instance(problem, shape)) list.add(shape, mechanism);
  };
  const auto plain = [](ForwardShape& s) { s.warpgroups = 2, s.streams = 1, s.columns = s.piece = 128; };
  without(chosen.warpgroups > 2, "three or four warpgroups", plain);
  without(chosen.streams == 2, "two streams", plain);
  without(chosen.streams == 1 && chosen.piece < chosen.columns, "gathered tiles", plain);
  without(chosen.row_tiles == RowTiles::kOfBlocks, "row tiles begin with blocks",
          [](ForwardShape& s) { s.row_tiles = RowTiles::kEven; });
  without(chosen.pack > 1, "heads share a row tile", [](ForwardShape& s) { s.pack = 1; });
  without(chosen.heavy_first, "heavy first", [](ForwardShape& s) { s.heavy_first = false; });
  without(chosen.paired, "pairs", [](ForwardShape& s) { s.paired = false; });
  return std::move(list.result);
}

}  // namespace longspan
