// The checks that `longspan run` makes of a strategy whose ranks are processes: whole tensors in, the whole
// result on every process, both oracles, and a timed pass that all ranks report.
#pragma once

#include <string_view>

#include "attention/oracle/verify.h"
#include "base/error.h"
#include "cp/execute/parallel_kernel.h"
#include "unit/cp/problems.h"

namespace longspan {

// Throws at the first failure; returns the number of problems that passed.
inline int verify_whole(Communicator& communicator, const Kernel& kernel, const Device& device, DType dtype,
                        int64_t tokens, int64_t heads_q, int64_t heads_kv, int64_t head_dim) {
  int cases = 0;
  for (const Strategy& strategy : strategies()) {
    ParallelOptions options;
    options.strategy = &strategy;
    options.topology = {1, communicator.size()};
    options.process = &communicator;
    const auto over = parallel_kernel(kernel, options);
    for (const char* mask : {"causal_document", "share_question"}) {
      Problem problem = cp_problem(mask, tokens, heads_q, heads_kv, head_dim);
      problem.dtype = dtype;
      problem.lse_gradient = mask == std::string_view("share_question");
      if (!over->supports(problem, Direction::kBackward, device)) continue;
      const auto plan = over->plan(problem, device);
      const VerifyReport report = verify(*plan, problem, Direction::kBackward, device, {});
      LONGSPAN_CHECK(report.passed(), "{} {}: {}", strategy.name, mask, report.failure);
      auto& spread = dynamic_cast<ParallelPlan&>(*plan);
      for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
        const auto passes = spread.run(direction, true);
        LONGSPAN_CHECK(passes.size() == static_cast<size_t>(communicator.size()), "{} ranks were timed",
                       passes.size());
        for (const RankPass& pass : passes) LONGSPAN_CHECK(pass.time_s > 0, "a pass of {} s", pass.time_s);
      }
      const std::vector<double> all = spread.of_all(communicator.rank());
      for (int rank = 0; rank < communicator.size(); ++rank)
        LONGSPAN_CHECK(all[static_cast<size_t>(rank)] == rank, "rank {} tells {}", rank, all[rank]);
      ++cases;
    }
  }
  return cases;
}

}  // namespace longspan
