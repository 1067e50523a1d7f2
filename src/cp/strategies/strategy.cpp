#include "cp/strategies/strategy.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "cp/strategies/strategies.h"

namespace longspan {

std::span<const Strategy> strategies() {
  static const Strategy table[] = {kUlysses, kRingP2P, kRingAllGather, kUsp, kLoongTrain, kBalanced};
  return table;
}

namespace {

template <class Items, class Name>
auto find_by_name(const Items& items, std::string_view what, std::string_view name, Name name_of_item) {
  std::vector<std::string_view> names;
  for (const auto& item : items) {
    if (name_of_item(item) == name) return &item;
    names.push_back(name_of_item(item));
  }
  throw Error(ErrorKind::kInput,
              fmt::format("{} '{}' is unknown; there are {}", what, name, fmt::join(names, ", ")), __FILE__,
              __LINE__, "name is known");
}

constexpr Sharding kShardings[] = {Sharding::kAuto, Sharding::kContiguous, Sharding::kZigzag,
                                   Sharding::kPerDocument};
constexpr Placement kPlacements[] = {Placement::kHeadFirst, Placement::kContextFirst};

}  // namespace

std::string_view name_of(Sharding sharding) {
  switch (sharding) {
    case Sharding::kAuto:
      return "auto";
    case Sharding::kContiguous:
      return "contiguous";
    case Sharding::kZigzag:
      return "zigzag";
    case Sharding::kPerDocument:
      return "per-document";
  }
  return "?";
}

std::string_view name_of(Placement placement) {
  return placement == Placement::kHeadFirst ? "head-first" : "context-first";
}

bool is_hybrid(std::string_view strategy) {
  return strategy == kUsp.name || strategy == kLoongTrain.name;
}

StrategyOptions resolved(const Strategy& strategy, const Problem& problem, const Topology& topology,
                         StrategyOptions options) {
  int ring = topology.ranks();
  if (is_hybrid(strategy.name)) {
    if (options.ulysses_degree == 0) options.ulysses_degree = default_ulysses_degree(problem, topology);
    ring /= options.ulysses_degree;
  } else {
    options.ulysses_degree = strategy.name == kUlysses.name ? topology.ranks() : 1;
    options.placement = Placement::kHeadFirst;
    if (strategy.name == kUlysses.name) ring = 1;
  }
  if (strategy.name != kLoongTrain.name) {
    options.inner_ring = ring;
  } else if (options.inner_ring == 0) {
    options.inner_ring = ring / default_windows(ring);
  }
  if (options.sharding == Sharding::kAuto && strategy.name != kBalanced.name) {
    options.sharding = ring == 1 ? Sharding::kContiguous : Sharding::kPerDocument;
  }
  return options;
}

const Strategy& strategy_from_name(std::string_view name) {
  return *find_by_name(strategies(), "strategy", name, [](const Strategy& s) { return s.name; });
}

Sharding sharding_from_name(std::string_view name) {
  return *find_by_name(kShardings, "sharding", name, [](Sharding s) { return name_of(s); });
}

Placement placement_from_name(std::string_view name) {
  return *find_by_name(kPlacements, "placement", name, [](Placement p) { return name_of(p); });
}

}  // namespace longspan
