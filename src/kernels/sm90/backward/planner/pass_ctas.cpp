#include "kernels/sm90/backward/planner/pass_ctas.h"

#include <algorithm>
#include <cmath>

#include "kernels/sm90/tuning/h200.h"

namespace longspan::sm90 {

// As many CTAs as finish the passes when the others finish the items. One too few and items wait for the
// passes, which costs 5 to 10 %; one too many costs half a per cent.
int choose_pass_ctas(const BackwardPassWork& work) {
  namespace tuned = h200::backward;
  const double tile_cycles = work.claimed ? tuned::kTileCyclesClaimed : tuned::kTileCyclesAdded;
  if (work.sections < tuned::kPassMinSections || work.tiles == 0) return 0;
  const auto units = static_cast<double>(work.units);
  if (static_cast<double>(work.section_items) < tuned::kPassMinItems * units) return 0;
  const double before = static_cast<double>(work.jobs_before * work.bytes_before) / tuned::kPassBytesPerCycle;
  const double after = static_cast<double>(work.jobs_after * work.bytes_after) / tuned::kPassBytesPerCycle;
  const double items = static_cast<double>(work.tiles) * tile_cycles;
  const auto ctas_for = [&](double passes, double others) { return units * passes / (passes + others); };
  const double wanted = ctas_for(before + after, items);
  const double size = units / tuned::kPassUnits;
  if (wanted < tuned::kPassMinWanted * size || wanted > tuned::kPassMaxWanted * size) return 0;
  // The last section has to be prepared before other CTAs reach it.
  const double wanted_before = ctas_for(before, items * (1 - work.share_last));
  return static_cast<int>(std::ceil(std::max({wanted, wanted_before, tuned::kPassMinCtas * size})));
}

}  // namespace longspan::sm90
