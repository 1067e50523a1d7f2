// The strategies: pure functions from a problem and a machine to a schedule, in one table.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "attention/kernel.h"
#include "cp/schedule/schedule.h"

namespace longspan {

// How tokens are dealt to ranks.
enum class Sharding : uint8_t {
  kAuto,         // the strategy's own choice
  kContiguous,   // rank r owns one range
  kZigzag,       // rank r of P owns chunks r and 2P - 1 - r of 2P: equal load under a causal mask
  kPerDocument,  // zigzag within each block of the mask's diagonal (each document)
};
std::string_view name_of(Sharding sharding);
Sharding sharding_from_name(std::string_view name);  // throws an input error that lists the names

// Which of the two axes of a hybrid runs over neighbouring ranks, and so stays inside a node.
enum class Placement : uint8_t { kHeadFirst, kContextFirst };
std::string_view name_of(Placement placement);
Placement placement_from_name(std::string_view name);

struct StrategyOptions {
  int ulysses_degree =
      0;  // u of USP and LoongTrain; 0: the largest divisor of the ranks that divides the KV heads
  int inner_ring = 0;  // i of LoongTrain; 0: r / w with w the largest divisor of r for which w <= r / w
  Placement placement = Placement::kHeadFirst;
  Sharding sharding = Sharding::kAuto;
  bool skip_unneeded =
      true;  // KV that no row of the receiver (or of those it passes it on to) sees does not travel
  friend bool operator==(const StrategyOptions&, const StrategyOptions&) = default;
};

struct Strategy {
  std::string_view name;
  std::string_view description;
  Support (*supports)(const Problem& problem, const Topology& topology, const StrategyOptions& options);
  Schedule (*schedule)(const Problem& problem, const Topology& topology, const StrategyOptions& options);
};

std::span<const Strategy> strategies();
bool is_hybrid(std::string_view strategy);  // has a Ulysses degree and a placement: usp, loongtrain
// The options with what was left to the strategy filled in: the degree, the inner ring, the sharding.
StrategyOptions resolved(const Strategy& strategy, const Problem& problem, const Topology& topology,
                         StrategyOptions options);
const Strategy& strategy_from_name(std::string_view name);  // throws an input error that lists the names

}  // namespace longspan
