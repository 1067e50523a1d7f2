// Prints a hash of every plan of sm90 for the suites `dense` and `sparse`: tile shape, tile map, work items
// and their order. It needs no GPU. Compare the output of two builds to show that a change leaves the plans
// as they were.
//   sm90_plans [dense|sparse|all] [regular expression of cases]
// Each case takes its first mask. A backward case has two plans: default and deterministic.
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <regex>
#include <string>
#include <type_traits>
#include <vector>

#include <fmt/format.h>

#include "bench/measure/mask_source.h"
#include "bench/spec/suite.h"
#include "kernels/sm90/backward/planner/arrangement.h"
#include "kernels/sm90/backward/planner/shape.h"
#include "kernels/sm90/forward/planner/lower.h"
#include "kernels/sm90/forward/planner/shape.h"
#include "kernels/sm90/forward/planner/split.h"
#include "longspan/base.h"

namespace longspan {
namespace {

using namespace sm90;

// A hash of the values that are added, in their order.
class Hash {
 public:
  template <class T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void add(T value) { mix(static_cast<uint64_t>(value)); }
  template <class T>
  void add(const std::vector<T>& values) {
    static_assert(std::is_trivially_copyable_v<T> && std::has_unique_object_representations_v<T>);
    add_bytes(values.data(), values.size() * sizeof(T));
  }
  void add_bytes(const void* data, size_t bytes) {
    mix(bytes);
    const auto* at = static_cast<const unsigned char*>(data);
    for (; bytes >= 8; at += 8, bytes -= 8) {
      uint64_t word = 0;
      std::memcpy(&word, at, 8);
      mix(word);
    }
    uint64_t rest = 0;
    std::memcpy(&rest, at, bytes);
    mix(rest);
  }
  uint64_t value() const { return value_; }

 private:
  void mix(uint64_t word) {
    value_ = (std::rotl(value_, 5) ^ word) * 0x9e3779b97f4a7c15u;
    value_ ^= value_ >> 29;
  }
  uint64_t value_ = 0x2545f4914f6cdd1d;
};

// The properties of an H200 that planners use, from the run line of
// results/nvidia-h200/2026-11-21-dense.jsonl.
constexpr int kUnits = 132;
Device h200() {
  Device device;
  device.kind = DeviceKind::kCuda;
  device.units = kUnits;
  device.capability = 90;
  device.cache_bytes = 62914560;
  return device;
}

uint64_t forward(const Problem& problem) {
  Hash hash;
  const Device device = h200();
  const ForwardShape shape = choose_forward_shape(problem, device);
  hash.add(shape.columns), hash.add(shape.piece), hash.add(shape.streams), hash.add(shape.pack);
  hash.add(shape.warpgroups);
  hash.add(shape.row_tiles), hash.add(shape.paired);
  const ForwardMap map = lower_forward(*problem.masks, shape.tile_shape(), shape.row_tiles);
  hash.add(map.row_tiles), hash.add(map.rows_per_tile), hash.add(map.tiles), hash.add(map.steps);
  hash.add_bytes(map.work.data(), map.work.size() * sizeof(map.work[0]));
  hash.add(map.entries), hash.add(map.spans);
  const WorkOrder order = choose_work_order(problem, shape, map, device);
  hash.add(order.row_tiles), hash.add(order.units), hash.add(order.section_units), hash.add(order.heavy_rows);
  if (shape.paired) {
    const ForwardSplit split = split_last_wave(map, order, shape.columns, kUnits / 2);
    hash.add(split.whole_items), hash.add(split.slots);
    hash.add_bytes(split.parts.data(), split.parts.size() * sizeof(split.parts[0]));
    hash.add(split.entries);
  }
  return hash.value();
}

uint64_t backward(const Problem& problem) {
  Hash hash;
  const BackwardShape shape = choose_backward_shape(problem);
  hash.add(shape.kind), hash.add(shape.rows), hash.add(shape.keys), hash.add(shape.store);
  hash.add(shape.in_rows), hash.add(shape.section_units), hash.add(shape.aligned), hash.add(shape.join_tiles);
  hash.add(shape.pass_ctas), hash.add(shape.rest), hash.add(shape.by_time);
  const BackwardArrangement all = arrange_backward(problem, shape, kUnits);
  const CompiledMap& map = all.grid.map;
  hash.add(map.row_tiles), hash.add(map.rows_per_tile);
  hash.add(map.work), hash.add(map.runs), hash.add(map.partials), hash.add(map.spans);
  hash.add(all.grid.rows), hash.add(all.grid.keys);
  const auto& split = all.split;
  hash.add(split.parts), hash.add(split.most_tiles), hash.add(split.order), hash.add(split.group_items);
  hash.add(split.last_rounds), hash.add(split.kv_heads), hash.add(split.walk.descending);
  hash.add(split.walk.by_rows), hash.add(split.by_time);
  hash.add(all.items.per_list), hash.add(all.items.lists), hash.add(all.items.shared);
  hash.add(all.items.work), hash.add(all.items.key_tiles);
  hash.add(all.schedule.streams), hash.add(all.schedule.next), hash.add(all.schedule.turns);
  hash.add(all.schedule.first), hash.add(all.schedule.runs), hash.add(all.schedule.first_run);
  hash.add(all.schedule.of_head);
  hash.add(all.row_tiles), hash.add(all.key_tiles), hash.add(all.section_heads), hash.add(all.last_section);
  hash.add(all.last_list), hash.add(all.pass_ctas), hash.add(all.rests);
  return hash.value();
}

Problem problem_of(const bench::Case& c) {
  const DrawnMask mask = bench::MaskSource(c).next();
  Problem problem;
  problem.masks = std::make_shared<const HeadMasks>(mask.masks);
  problem.tokens_q = problem.masks->front().rows();
  problem.tokens_kv = problem.masks->front().columns();
  problem.heads_q = c.heads_q;
  problem.heads_kv = c.heads_kv;
  problem.head_dim = c.head_dim;
  problem.dtype = c.dtype;
  return problem;
}

void print_plans(const std::string& suite, const std::regex& filter) {
  int plans = 0;
  for (const bench::Case& c : bench::expand(bench::find_suite(suite), {"sm90"}, {"sm90"})) {
    const std::string name = bench::describe(c);
    if (!std::regex_search(name, filter)) continue;
    Problem problem = problem_of(c);
    if (c.direction == Direction::kForward) {
      std::printf("%016lx %s %s\n", static_cast<unsigned long>(forward(problem)), bench::id_of(c).c_str(),
                  name.c_str());
      ++plans;
      continue;
    }
    for (const bool deterministic : {false, true}) {
      problem.deterministic = deterministic;
      std::printf("%016lx %s %s%s\n", static_cast<unsigned long>(backward(problem)), bench::id_of(c).c_str(),
                  name.c_str(), deterministic ? ", deterministic" : "");
      ++plans;
    }
  }
  std::printf("%s: %d plans\n", suite.c_str(), plans);
}

}  // namespace
}  // namespace longspan

int main(int argc, char** argv) {
  using namespace longspan;
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const std::string what = argc > 1 ? argv[1] : "all";
  if (argc > 3 || (what != "all" && what != "dense" && what != "sparse")) {
    std::fprintf(stderr, "usage: sm90_plans [dense|sparse|all] [regular expression of cases]\n");
    return 2;
  }
  try {
    const std::regex filter(argc > 2 ? argv[2] : "");
    for (const std::string suite : {"dense", "sparse"})
      if (what == "all" || what == suite) print_plans(suite, filter);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
  return 0;
}
