// The processes that a launcher (mpirun, srun, torchrun) started. Each is one rank of the cases that are
// spread over processes. Rank 0 selects the cases and writes the results; the others join the cases that it
// announces.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/case/case_answer.h"
#include "bench/case/workbench.h"
#include "bench/spec/case.h"
#include "bench/spec/timing_rule.h"
#include "comm/rendezvous.h"

namespace longspan::bench {

class Team {
 public:
  // Waits for all processes. Throws an input error that names the missing ranks.
  explicit Team(const Launch& launch);
  ~Team();  // on rank 0: dismisses the others
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int rank() const { return launch_.rank; }
  Alarm& alarm() const { return *meeting_; }  // reports ranks that have died

  // On rank 0: announces a case. Throws the reason if another rank has died.
  void call(const Case& c);

  // On the other ranks: joins those of `cases` that rank 0 announces, using the GPU of this number, until
  // rank 0 dismisses the rank. False if a failure or a signal ended it. Throws if another rank has died, or
  // if rank 0 announces another case: what this rank measures and opens comes from its own suite.
  bool follow(int gpu, const TimingRule& rule, const std::vector<Case>& cases, const Workbench& workbench);

 private:
  const Case* next(const std::vector<Case>& cases, double timeout_s);  // nullptr: no more cases
  void wait_for_rank_0(double timeout_s);  // waits for rank 0 to end, or for the time limit

  const Launch launch_;
  std::unique_ptr<Rendezvous> meeting_;
};

// Measures the case in this process: MPI is initialised once per launched process, so a case over MPI has no
// child. If the case exceeds its time limit, `on_late` is called with the failure and the process then ends.
CaseAnswer run_over_mpi(const Case& c, const Device& device, const TimingRule& rule,
                        const Workbench& workbench, Alarm& alarm,
                        const std::function<void(CaseAnswer)>& on_late);

}  // namespace longspan::bench
