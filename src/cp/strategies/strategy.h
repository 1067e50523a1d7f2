// The strategies: pure functions from a problem and a machine to a schedule, in one table.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "attention/kernel.h"
#include "base/options.h"
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

// Which of the two axes of a hybrid runs over neighbouring ranks, and so stays inside a node.
enum class Placement : uint8_t { kHeadFirst, kContextFirst };

// The values of a strategy's options; what is not given is left to the strategy.
using StrategyOptions = OptionValues;

// Options that several strategies read. Those of one strategy stand in its file.
inline constexpr std::string_view kShardings[] = {"auto", "contiguous", "zigzag", "per-document"};
inline constexpr OptionSpec kSharding{.name = "sharding",
                                      .help = "how tokens are dealt: auto, contiguous, zigzag, per-document",
                                      .kind = OptionKind::kChoice,
                                      .choices = kShardings,
                                      .preset = "auto"};
inline constexpr OptionSpec kSkip{.name = "skip",
                                  .help = "whether keys that no row sees stay where they are: yes, no",
                                  .kind = OptionKind::kFlag,
                                  .preset = "yes"};

struct Strategy {
  std::string_view name;
  std::string_view description;
  int series = 0;  // its place, and with it its colour, in the charts of every report
  std::span<const OptionSpec> options;
  Support (*supports)(const Problem& problem, const Topology& topology, const StrategyOptions& options);
  Schedule (*schedule)(const Problem& problem, const Topology& topology, const StrategyOptions& options);
  // The options with what was left to the strategy filled in, and the layout that it amounts to (see
  // set_layout).
  StrategyOptions (*resolve)(const Problem& problem, const Topology& topology, StrategyOptions options);
};

std::span<const Strategy> strategies();
std::span<const TableOption> strategy_options();            // the strategies' options, each once
const Strategy& strategy_from_name(std::string_view name);  // throws an input error that lists the names

}  // namespace longspan
