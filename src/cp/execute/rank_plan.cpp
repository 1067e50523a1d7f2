#include "cp/execute/rank_plan.h"

#include <algorithm>

#include "base/error.h"

namespace longspan {

RankPlan::RankPlan(const Schedule& schedule, const Problem& problem, const Kernel& kernel,
                   const Device& device, const Communicator& communicator, Direction until)
    : schedule_(schedule), problem_(problem), kernel_(kernel), device_(device), rank_(communicator.rank()) {
  LONGSPAN_CHECK(communicator.size() == schedule.ranks, "a schedule for {} ranks on {} ranks", schedule.ranks,
                 communicator.size());
  const Ranges& owned = schedule.owned[static_cast<size_t>(rank_)];
  if (until == Direction::kForward) no_backward_ = "it was planned for forward passes alone";
  // Tell the kernel (own_rows) when its result for rows is complete and has their own dtype. Do not tell it
  // if communication takes SMs: the kernel's fast path may need all SMs at once.
  std::map<std::pair<int32_t, int32_t>, bool> own_rows;
  for (const Direction direction : {Direction::kForward, Direction::kBackward}) {
    Pass& pass = passes_[static_cast<size_t>(direction)];
    pass.rounds = rounds_of(schedule, direction, rank_);
    pass.last_uses = last_uses(schedule, pass.rounds);
    pass.results = results_of(schedule, direction, pass.rounds);
    if (communicator.takes_rows()) {
      pass.in_place = results_in_place(schedule, pass.rounds, owned);
    } else {
      for (const RankRound& round : pass.rounds) pass.in_place.emplace_back(round.taken.size(), false);
    }
    for (const RankRound& round : pass.rounds) pass.landings.push_back(landings_of(schedule, round, owned));
    pass.rooms = rooms_of(schedule, problem, direction, pass.rounds, pass.landings, pass.results);

    if (direction == Direction::kBackward && until == Direction::kForward) continue;
    for (size_t i = 0; i < pass.rounds.size(); ++i) {
      for (size_t a = 0; a < pass.rounds[i].attend.size(); ++a) {
        const Attend& attend = pass.rounds[i].attend[a];
        const auto [it, fresh] =
            own_rows.try_emplace({attend.q, attend.kv}, !communicator.takes_multiprocessors());
        it->second = it->second && pass.results[i][a].rows.alone();
      }
    }
  }
  if (until == Direction::kBackward) {
    const Pass& forward = pass(Direction::kForward);
    kept_ = kept_of(schedule, problem, forward.rounds, forward.landings);
  }
  for (const auto& [regions, own] : own_rows) make_plan(regions, own, until);
}

void RankPlan::make_plan(std::pair<int32_t, int32_t> regions, bool own_rows, Direction until) {
  const Region &q = schedule_.regions[regions.first], &kv = schedule_.regions[regions.second];
  Problem part = problem_;
  part.tokens_q = count(q.tokens);
  part.tokens_kv = count(kv.tokens);
  part.heads_q = q.heads.size();
  part.heads_kv = kv.heads.size();
  part.scale = problem_.softmax_scale();
  part.fp32_output = true;
  part.own_rows = own_rows;
  auto masks = std::make_shared<HeadMasks>();
  if (problem_.masks->size() == 1) {
    masks->push_back(problem_.masks->front().gather(q.tokens, kv.tokens));
  } else {
    for (int64_t head = kv.heads.begin; head < kv.heads.end; ++head) {
      masks->push_back(problem_.mask_of_kv_head(head).gather(q.tokens, kv.tokens));
    }
  }
  part.masks = std::move(masks);
  const Support support = kernel_.supports(part, Direction::kForward, device_);
  LONGSPAN_CHECK_INPUT(support, "{} cannot attend for rank {}: {}", kernel_.name(), rank_, support.reason);
  if (until == Direction::kBackward) {
    if (const Support both = kernel_.supports(part, Direction::kBackward, device_); !both)
      no_backward_ = both.reason;
  }
  plans_[regions] =
      until == Direction::kBackward ? kernel_.plan(part, device_) : kernel_.plan_forward(part, device_);
}

size_t RankPlan::workspace_bytes() const {
  size_t bytes = 0;
  for (const auto& [regions, plan] : plans_) {
    bytes = std::max(bytes, plan->workspace_bytes(Direction::kForward));
    if (no_backward_.empty()) bytes = std::max(bytes, plan->workspace_bytes(Direction::kBackward));
  }
  return bytes;
}

size_t RankPlan::bytes() const {
  size_t bytes = 0;
  for (const auto& [regions, plan] : plans_) bytes += plan->plan_bytes();
  return bytes;
}

}  // namespace longspan
