#include "kernels/sm90/backward/planner/pass_ctas.h"

#include <algorithm>
#include <cmath>

namespace longspan::sm90 {

// As many as are done with the jobs when the others are with the items: one too few and items wait for them,
// which costs 5 to 10 %; one too many costs half a per cent.
int choose_pass_ctas(const BackwardPassWork& work) {
  // Bytes that a pass block moves in a cycle beside the others, 2 to 8 % less than it does; and cycles of a
  // tile's products.
  constexpr double kBytesPerCycle = 45;
  const double tile_cycles = work.claimed ? 4100 : 3500;
  // The first section is prepared before the kernel, and the last one's gradients are finished after it.
  constexpr int64_t kFewestSections = 3;
  // Where a section has fewer items than that for each block, these come to the next one before it is
  // prepared.
  constexpr double kFewestItems = 0.75;
  // Of that many multiprocessors; of fewer, as in a part of a GPU, in proportion. Three blocks were no better
  // than four where they would do; where still less would, as for long columns, none were measured; where
  // more would, as for short documents, the pass kernels, which have all blocks, were not beaten.
  constexpr double kMeasuredUnits = 132, kLeastWanted = 2.5, kMostWanted = 12, kFewestCtas = 4;

  if (work.sections < kFewestSections || work.tiles == 0) return 0;
  const auto units = static_cast<double>(work.units);
  if (static_cast<double>(work.section_items) < kFewestItems * units) return 0;
  const double before = static_cast<double>(work.jobs_before * work.bytes_before) / kBytesPerCycle;
  const double after = static_cast<double>(work.jobs_after * work.bytes_after) / kBytesPerCycle;
  const double items = static_cast<double>(work.tiles) * tile_cycles;
  const auto ctas_for = [&](double passes, double others) { return units * passes / (passes + others); };
  const double wanted = ctas_for(before + after, items);
  const double size = units / kMeasuredUnits;
  if (wanted < kLeastWanted * size || wanted > kMostWanted * size) return 0;
  // The last section, too, is prepared before others come to it.
  const double wanted_before = ctas_for(before, items * (1 - work.share_last));
  return static_cast<int>(std::ceil(std::max({wanted, wanted_before, kFewestCtas * size})));
}

}  // namespace longspan::sm90
