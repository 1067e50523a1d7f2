#include "cp/strategies/strategies.h"

#include <fmt/ranges.h>

#include "base/error.h"
#include "base/nearest.h"
#include "cp/strategies/sharding.h"

namespace longspan {

std::span<const Strategy> strategies() {
  static const Strategy table[] = {kUlysses, kRingP2P, kRingAllGather, kUsp, kLoongTrain, kBalanced};
  return table;
}

std::span<const TableOption> strategy_options() {
  static const std::vector<TableOption> all = [] {
    TableOptions options;
    for (const Strategy& strategy : strategies()) options.add_row(strategy.name, strategy.options);
    return options.take();
  }();
  return all;
}

Schedule Strategy::schedule(const Problem& problem, const Topology& topology, const StrategyOptions& options,
                            std::span<const Ranges> owned) const {
  if (!owned.empty()) check_owned(owned, problem.tokens_q, topology.ranks());
  return make(problem, topology, options, owned);
}

std::string_view name_of(Sharding sharding) {
  return kShardings[static_cast<size_t>(sharding)];
}

const Strategy& strategy_from_name(std::string_view name) {
  std::vector<std::string> names;
  for (const Strategy& strategy : strategies()) {
    if (strategy.name == name) return strategy;
    names.emplace_back(strategy.name);
  }
  LONGSPAN_CHECK_INPUT(false, "strategy '{}' is unknown{}; there are {}", name, did_you_mean(name, names),
                       fmt::join(names, ", "));
  return strategies().front();
}

}  // namespace longspan
