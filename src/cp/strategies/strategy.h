// The strategies: pure functions from a problem and a topology to a schedule, in one table.
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
  kZigzag,       // rank r of P owns chunks r and 2P - 1 - r of 2P: equal load for a causal mask
  kPerDocument,  // zigzag within each block of the mask's diagonal (each document)
};
std::string_view name_of(Sharding sharding);

// Which axis of a hybrid runs over neighbouring ranks and so stays within a node.
enum class Placement : uint8_t { kHeadFirst, kContextFirst };

// The values of a strategy's options; the strategy chooses those that are not given.
using StrategyOptions = OptionValues;

// Options read by several strategies. Options of a single strategy are in its file.
inline constexpr std::string_view kShardings[] = {"auto", "contiguous", "zigzag", "per-document"};
inline constexpr OptionSpec kSharding{
    .name = "sharding",
    .help = "how tokens are sharded: auto, contiguous, zigzag, per-document",
    .kind = OptionKind::kChoice,
    .choices = kShardings,
    .preset = "auto"};
inline constexpr OptionSpec kSkip{.name = "skip",
                                  .help = "whether to skip sending keys that no row sees: yes, no",
                                  .kind = OptionKind::kFlag,
                                  .preset = "yes"};

struct Strategy {
  std::string_view name;
  std::string_view description;
  int series = 0;  // its position and colour in the charts of every report
  std::span<const OptionSpec> options;
  Support (*supports)(const Problem& problem, const Topology& topology, const StrategyOptions& options);
  Schedule (*make)(const Problem& problem, const Topology& topology, const StrategyOptions& options,
                   std::span<const Ranges> owned);
  // Returns the options with the strategy's own choices filled in, and the resulting layout (see
  // with_layout).
  StrategyOptions (*resolve)(const Problem& problem, const Topology& topology, StrategyOptions options);

  // The schedule of a mask. `owned`, by rank, replaces the strategy's own placement, which depends on the
  // mask and on the option `sharding`: several masks can so share one. Throws an input error unless it is a
  // partition of the tokens.
  Schedule schedule(const Problem& problem, const Topology& topology, const StrategyOptions& options,
                    std::span<const Ranges> owned = {}) const;
};

std::span<const Strategy> strategies();
std::span<const TableOption> strategy_options();            // the strategies' options, without duplicates
const Strategy& strategy_from_name(std::string_view name);  // throws an input error that lists the names

}  // namespace longspan
