#include "kernels/sm90/backward/planner/pass_ctas.h"

#include <algorithm>
#include <cmath>

#include "kernels/sm90/tuning/h200.h"

namespace longspan::sm90 {
namespace tuned = h200::backward;

// As many CTAs as finish the passes when the others finish the items. One too few and items wait for the
// passes, which costs 5 to 10 %; one too many costs half a per cent.
int choose_pass_ctas(const BackwardPassWork& work) {
  const BackwardJobs& jobs = work.jobs;
  if (jobs.last_section + 1 < tuned::kPassMinSections) return 0;
  if (work.tiles < tuned::kPassMinTiles * work.units) return 0;
  const auto units = static_cast<double>(work.units);
  const double before =
      static_cast<double>(jobs.jobs_before() * work.bytes_before) / tuned::kPassBytesPerCycle;
  const double after = static_cast<double>(jobs.jobs_after() * work.bytes_after) / tuned::kPassBytesPerCycle;
  const double items = static_cast<double>(work.tiles) * tuned::kTileCycles;
  const double share_last = static_cast<double>(jobs.heads_of(jobs.last_section)) / jobs.heads_kv;
  const auto ctas_for = [&](double passes, double others) { return units * passes / (passes + others); };
  // The last section has to be prepared before other CTAs reach it.
  const double ctas =
      std::ceil(std::max(ctas_for(before + after, items), ctas_for(before, items * (1 - share_last))));
  const bool too_few = static_cast<double>(work.section_items) < tuned::kPassMinItems * (units - ctas);
  return too_few ? 0 : static_cast<int>(ctas);
}

double tiles_of_passes_alone(const BackwardPassWork& work, bool with_pass_ctas) {
  const int64_t all = int64_t{work.jobs.heads_kv} * work.jobs.group * work.jobs.row_tiles;
  const int64_t before = all - (with_pass_ctas ? work.jobs.jobs_before() : 0),
                after = all - (with_pass_ctas ? work.jobs.jobs_after() : 0);
  const auto bytes = static_cast<double>(before * work.bytes_before + after * work.bytes_after);
  return bytes / tuned::kPassBytesPerCycleAlone / tuned::kTileCycles;
}

}  // namespace longspan::sm90
