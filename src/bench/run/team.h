// The processes that a launcher (mpirun, srun, torchrun) started, each one rank of the cases that are spread
// over processes. Rank 0 chooses the cases, writes and prints; the others take part in what it calls them to.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "bench/run/case_answer.h"
#include "bench/run/workbench.h"
#include "bench/spec/case.h"
#include "bench/spec/timing_rule.h"
#include "comm/rendezvous.h"

namespace longspan::bench {

class Team {
 public:
  // Meets all of them. Throws an input error that names the ranks that do not come.
  explicit Team(const Launch& launch);
  ~Team();  // rank 0's dismisses the others
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int rank() const { return launch_.rank; }
  Alarm& alarm() const { return *meeting_; }  // tells of ranks that have died

  // Rank 0: the others are to begin this case. Throws the reason where one of them has died.
  void call(const Case& c);

  // The others: takes part in the cases, with the GPU of this number, until rank 0 dismisses them. False
  // where a failure or a signal ended it. Throws where rank 0 or another one has died.
  bool follow(int gpu, const TimingRule& rule, const Workbench& workbench);

 private:
  std::optional<Case> next(double timeout_s);
  void await_the_end(double timeout_s);  // of rank 0, but not for ever

  const Launch launch_;
  std::unique_ptr<Rendezvous> meeting_;
};

// Measures the case in this very process: MPI is initialised once for each process that its launcher started,
// so that a case over it cannot have processes of its own. `on_late` is called, with the failure, where the
// case takes longer than the rule allows; the process ends after that.
CaseAnswer run_over_mpi(const Case& c, const Device& device, const TimingRule& rule,
                        const Workbench& workbench, Alarm& alarm,
                        const std::function<void(CaseAnswer)>& on_late);

}  // namespace longspan::bench
