// What a case that was spread over ranks adds to its record: each rank's part, and the plan, round by round.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace longspan::report {

struct PlanMove {
  std::string what;  // "q", "kv", "o", "do", "dq", "dkv"
  int from = 0, to = 0;
  double bytes = 0;
};

struct PlanRound {
  std::vector<double> area, sent_bytes;  // by rank
  std::vector<PlanMove> moves;           // none where there were too many ranks to record them
};

struct ParallelRecord {
  int ranks = 0, nodes = 1;
  std::string transport;
  std::optional<double> imbalance, spread;
  std::map<std::string, std::vector<double>, std::less<>> by_rank;  // "compute_s", "sent_bytes", ...
  std::map<std::string, double> difference, single_error;           // by tensor
  std::vector<std::vector<std::pair<double, double>>> owned;        // by rank, ranges of tokens
  std::vector<PlanRound> plan;

  const std::vector<double>* list(std::string_view key) const {
    const auto found = by_rank.find(key);
    return found == by_rank.end() ? nullptr : &found->second;
  }
  // The mean share of the ranks' times that a part of it ("compute_s") takes; nothing where not recorded.
  std::optional<double> share(std::string_view part) const;
  std::optional<double> largest(std::string_view key) const;
};

}  // namespace longspan::report
