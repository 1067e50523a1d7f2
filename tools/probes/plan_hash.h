// Hashes of sm90's plans: what the GPU is given, whatever made it.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "kernels/sm90/backward/planner/arrangement.h"
#include "kernels/sm90/forward/planner/map.h"
#include "kernels/sm90/forward/planner/shape.h"

namespace longspan {

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

inline uint64_t hash_of(const Problem& problem, const sm90::ForwardShape& shape, const Device& device) {
  using namespace sm90;
  Hash hash;
  hash.add(shape.columns), hash.add(shape.piece), hash.add(shape.streams), hash.add(shape.pack);
  hash.add(shape.warpgroups);
  const ForwardMap map = lower_forward(*problem.masks, shape.tile_shape(), shape.row_tiles);
  hash.add(map.row_tiles), hash.add(map.rows_per_tile), hash.add(map.tiles), hash.add(map.steps);
  hash.add_bytes(map.work.data(), map.work.size() * sizeof(map.work[0]));
  hash.add(map.entries), hash.add(map.spans);
  const WorkOrder order = choose_work_order(problem, shape, map, device);
  hash.add(order.row_tiles), hash.add(order.units), hash.add(order.section_units), hash.add(order.heavy_rows);
  hash.add(order.late_units);
  if (shape.paired) hash.add(shape.paired);  // the plans of other shapes keep their hashes
  return hash.value();
}

inline uint64_t hash_of(const sm90::BackwardArrangement& all) {
  Hash hash;
  const sm90::BackwardShape& shape = all.shape;
  hash.add(shape.rows), hash.add(shape.keys), hash.add(shape.store), hash.add(shape.in_rows);
  const sm90::CompiledMap& map = all.grid.map;
  hash.add(map.row_tiles), hash.add(map.rows_per_tile);
  hash.add(map.runs), hash.add(map.partials), hash.add(map.spans);
  hash.add(all.grid.rows), hash.add(all.grid.keys);
  const auto& split = all.split;
  hash.add(split.walk.descending), hash.add(split.walk.by_rows);
  hash.add(all.items.per_list), hash.add(all.items.lists), hash.add(all.items.shared);
  hash.add(all.items.work), hash.add(all.items.key_tiles);
  hash.add(all.schedule.streams), hash.add(all.schedule.next), hash.add(all.schedule.turns);
  hash.add(all.schedule.of_head);
  hash.add(all.row_tiles), hash.add(all.key_tiles), hash.add(all.section_heads), hash.add(all.last_section);
  hash.add(all.last_list), hash.add(all.pass_ctas);
  return hash.value();
}

}  // namespace longspan
