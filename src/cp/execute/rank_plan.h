// One rank's static view of a schedule: the rounds of both passes, the placement of their data, and the
// kernel plans of its attends.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "attention/kernel.h"
#include "comm/communicator.h"
#include "cp/execute/placement.h"
#include "cp/schedule/schedule.h"

namespace longspan {

class RankPlan {
 public:
  struct Pass {
    std::vector<RankRound> rounds;
    std::vector<int32_t> last_uses;  // of the copies, in arrival order
    // The members below are by round.
    std::vector<std::vector<Landing>> landings;
    std::vector<std::vector<Results>> results;  // by attend
    std::vector<std::vector<bool>> in_place;    // by index in RankRound::taken
    std::vector<Rooms> rooms;
  };

  // The arguments of Executor's constructor, which is the only caller.
  RankPlan(const Schedule& schedule, const Problem& problem, const Kernel& kernel, const Device& device,
           const Communicator& communicator, Direction until);

  const Pass& pass(Direction direction) const { return passes_[static_cast<size_t>(direction)]; }
  Plan& kernel_plan(const Attend& attend) const { return *plans_.at({attend.q, attend.kv}); }

  const Kept& kept() const { return kept_; }  // by a forward pass; nothing if no backward pass is planned

  // Why the kernel has no backward pass here; empty if it has one.
  const std::string& no_backward() const { return no_backward_; }
  size_t workspace_bytes() const;  // the largest of any attend
  size_t bytes() const;            // held by the kernel's plans

 private:
  void make_plan(std::pair<int32_t, int32_t> regions, bool own_rows, Direction until);

  const Schedule& schedule_;
  const Problem& problem_;
  const Kernel& kernel_;
  const Device device_;
  const int rank_;
  Pass passes_[2];  // by direction
  Kept kept_;
  std::map<std::pair<int32_t, int32_t>, std::unique_ptr<Plan>> plans_;  // by regions of rows and keys
  std::string no_backward_;
};

}  // namespace longspan
