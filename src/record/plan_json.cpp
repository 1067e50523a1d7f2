#include "record/plan_json.h"

#include <map>
#include <tuple>

namespace longspan::bench {
namespace {

std::vector<int64_t> sum(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  std::vector<int64_t> sums(a.size());
  for (size_t i = 0; i < a.size(); ++i) sums[i] = a[i] + b[i];
  return sums;
}

// Moves of the same kind between the same two ranks are one.
Json moves_json(const Round& round, const Schedule& schedule, const Problem& problem) {
  std::map<std::tuple<Operand, int32_t, int32_t>, int64_t> bytes;
  for (const auto* moves : {&round.in, &round.out}) {
    for (const Move& move : *moves)
      bytes[{move.what, move.src, move.dst}] += bytes_of(move, schedule, problem);
  }
  Json list = Json::array();
  for (const auto& [key, value] : bytes) {
    const auto& [what, src, dst] = key;
    list.push_back({name_of(what), src, dst, value});
  }
  return list;
}

}  // namespace

Json pass_json(const Schedule& schedule, Direction direction, const Problem& problem, const Cost& cost) {
  const PassCost& pass = cost.of(direction);
  const auto& rounds = direction == Direction::kForward ? schedule.forward : schedule.backward;
  std::vector<int64_t> peak_bytes;
  for (int64_t elements : pass.peak_elements)
    peak_bytes.push_back(elements * static_cast<int64_t>(size_of(problem.dtype)));
  Json by_round = Json::array();
  for (size_t i = 0; i < rounds.size(); ++i) {
    const RoundCost& round = pass.rounds[i];
    Json entry = {{"sent_bytes", sum(round.sent_within, round.sent_between)},
                  {"between_nodes_bytes", round.sent_between},
                  {"area", round.area}};
    if (schedule.ranks <= kMostRanksDrawn) entry["moves"] = moves_json(rounds[i], schedule, problem);
    by_round.push_back(std::move(entry));
  }
  return {{"rounds", rounds.size()},
          {"imbalance", pass.imbalance},
          {"sent_bytes", sum(pass.sent_within, pass.sent_between)},
          {"between_nodes_bytes", pass.sent_between},
          {"area", pass.area},
          {"peak_copy_bytes", peak_bytes},
          {"by_round", std::move(by_round)}};
}

Json owned_json(const Schedule& schedule) {
  Json ranks = Json::array();
  for (const Ranges& owned : schedule.owned) {
    Json list = Json::array();
    for (const Range& range : owned) list.push_back({range.begin, range.end});
    ranks.push_back(std::move(list));
  }
  return ranks;
}

}  // namespace longspan::bench
