// Summarises one pass of a schedule: bytes, area and moves by round.
#include "bench/measure/pass_plan.h"

#include <map>
#include <tuple>

namespace longspan::bench {
namespace {

std::vector<int64_t> sum(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  std::vector<int64_t> sums(a.size());
  for (size_t i = 0; i < a.size(); ++i) sums[i] = a[i] + b[i];
  return sums;
}

// Adds up the moves of the same operand between the same two ranks.
std::vector<record::PlanMove> moves_of(const Round& round, const Schedule& schedule, const Problem& problem) {
  std::map<std::tuple<Operand, int32_t, int32_t>, int64_t> bytes;
  for (const auto* moves : {&round.in, &round.out}) {
    for (const Move& move : *moves)
      bytes[{move.what, move.src, move.dst}] += bytes_of(move, schedule, problem);
  }
  std::vector<record::PlanMove> list;
  for (const auto& [key, value] : bytes) {
    const auto& [what, src, dst] = key;
    list.push_back({std::string(name_of(what)), src, dst, value});
  }
  return list;
}

}  // namespace

record::PassPlan pass_plan(const Schedule& schedule, Direction direction, const Problem& problem,
                           const Cost& cost) {
  const PassCost& pass = cost.of(direction);
  const auto& rounds = direction == Direction::kForward ? schedule.forward : schedule.backward;
  record::PassPlan plan;
  plan.rounds = static_cast<int64_t>(rounds.size());
  plan.imbalance = pass.imbalance;
  plan.sent_bytes = sum(pass.sent_within, pass.sent_between);
  plan.between_nodes_bytes = pass.sent_between;
  plan.area = pass.area;
  for (int64_t elements : pass.peak_elements)
    plan.peak_copy_bytes.push_back(elements * static_cast<int64_t>(size_of(problem.dtype)));
  for (size_t i = 0; i < rounds.size(); ++i) {
    const RoundCost& round = pass.rounds[i];
    record::PlanRound& entry = plan.by_round.emplace_back();
    entry.sent_bytes = sum(round.sent_within, round.sent_between);
    entry.between_nodes_bytes = round.sent_between;
    entry.area = round.area;
    if (schedule.ranks <= kMostRanksDrawn) entry.moves = moves_of(rounds[i], schedule, problem);
  }
  return plan;
}

std::vector<std::vector<std::pair<int64_t, int64_t>>> owned_tokens(const Schedule& schedule) {
  std::vector<std::vector<std::pair<int64_t, int64_t>>> ranks;
  for (const Ranges& owned : schedule.owned) {
    auto& list = ranks.emplace_back();
    for (const Range& range : owned) list.emplace_back(range.begin, range.end);
  }
  return ranks;
}

}  // namespace longspan::bench
