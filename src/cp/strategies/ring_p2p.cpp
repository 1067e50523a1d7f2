#include "cp/strategies/blocks.h"
#include "cp/strategies/strategies.h"

namespace longspan {
namespace {

constexpr OptionSpec kOptions[] = {kSharding, kSkip};

Support supports(const Problem&, const Topology&, const StrategyOptions&) {
  return {};
}

Schedule schedule(const Problem& problem, const Topology& topology, const StrategyOptions& options,
                  std::span<const Ranges> owned) {
  return hybrid_schedule("ring-p2p", problem, topology, options, owned, 1, 1);
}

}  // namespace

const Strategy kRingP2P{"ring-p2p",  "KV is sent round a ring of ranks while they attend; merged by lse",
                        4,           kOptions,
                        supports,    schedule,
                        resolve_ring};

}  // namespace longspan
