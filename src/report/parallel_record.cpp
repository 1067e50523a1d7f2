#include "report/parallel_record.h"

#include <algorithm>

#include "base/error.h"
#include "report/results_line.h"

namespace longspan::report {

std::optional<double> ParallelRecord::share(std::string_view part) const {
  const auto *times = list("rank_time_s"), *parts = list(part);
  if (times == nullptr || parts == nullptr) return std::nullopt;
  double sum = 0, all = 0;
  for (size_t rank = 0; rank < times->size(); ++rank) {
    sum += (*parts)[rank];
    all += (*times)[rank];
  }
  if (all <= 0) return std::nullopt;
  return sum / all;
}

std::optional<double> ParallelRecord::largest(std::string_view key) const {
  const auto* values = list(key);
  if (values == nullptr || values->empty()) return std::nullopt;
  return *std::max_element(values->begin(), values->end());
}

namespace results_line {
namespace {

using Json = nlohmann::json;
constexpr int kMostRanks = 4096;

class Reader {
 public:
  explicit Reader(const Place& at) : at_(at) {}

  // Nothing in the schema is below 0.
  double number(const Json& value, const char* key) const {
    if (!value.is_number() || !(value.get<double>() >= 0))
      malformed(at_, fmt::format("'parallel': '{}' must hold numbers that are not below 0", key));
    return value.get<double>();
  }

  int whole(const Json& value, const char* key, int least, int most) const {
    const double x = number(value, key);
    if (x != static_cast<int>(x) || x < least || x > most)
      malformed(at_, fmt::format("'parallel': '{}' is {}; it must be a whole number from {} to {}", key, x,
                                 least, most));
    return static_cast<int>(x);
  }

  std::vector<double> by_rank(const Json& value, const char* key, int ranks) const {
    if (!value.is_array() || value.size() != static_cast<size_t>(ranks))
      malformed(at_, fmt::format("'parallel': '{}' must be a list of {} numbers", key, ranks));
    std::vector<double> numbers;
    for (const Json& item : value) numbers.push_back(number(item, key));
    return numbers;
  }

  const Json& array(const Json& value, const char* key) const {
    if (!value.is_array()) malformed(at_, fmt::format("'parallel': '{}' must be a list", key));
    return value;
  }

  std::vector<PlanMove> moves(const Json& list, int ranks) const {
    std::vector<PlanMove> moves;
    for (const Json& move : array(list, "moves")) {
      if (!move.is_array() || move.size() != 4 || !move[0].is_string())
        malformed(at_, "'parallel': each of 'moves' must be [operand, from, to, bytes]");
      moves.push_back({move[0].get<std::string>(), whole(move[1], "moves", 0, ranks - 1),
                       whole(move[2], "moves", 0, ranks - 1), number(move[3], "moves")});
    }
    return moves;
  }

 private:
  const Place& at_;
};

const Json* member(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

}  // namespace

std::optional<ParallelRecord> parse_parallel(const Json& line, const Place& at) {
  const Json* object = member(line, "parallel");
  if (object == nullptr) return std::nullopt;
  if (!object->is_object()) malformed(at, "'parallel' is not an object");
  const Reader read(at);
  ParallelRecord record;
  const Json* ranks = member(*object, "ranks");
  if (ranks == nullptr) malformed(at, "'parallel' has no 'ranks'");
  record.ranks = read.whole(*ranks, "ranks", 1, kMostRanks);
  if (const Json* nodes = member(*object, "nodes")) record.nodes = read.whole(*nodes, "nodes", 1, kMostRanks);
  if (const Json* transport = member(*object, "transport"); transport != nullptr && transport->is_string())
    record.transport = transport->get<std::string>();
  if (const Json* imbalance = member(*object, "imbalance"))
    record.imbalance = read.number(*imbalance, "imbalance");
  if (const Json* spread = member(*object, "spread")) record.spread = read.number(*spread, "spread");
  for (const char* key : {"area", "sent_bytes", "predicted_bytes", "between_nodes_bytes", "peak_copy_bytes",
                          "rank_time_s", "compute_s", "exposed_s", "reorder_s", "merge_s"}) {
    if (const Json* list = member(*object, key)) record.by_rank[key] = read.by_rank(*list, key, record.ranks);
  }
  for (const auto& [key, errors] :
       {std::pair{"difference", &record.difference}, {"single_error", &record.single_error}}) {
    const Json* tensors = member(*object, key);
    if (tensors == nullptr) continue;
    if (!tensors->is_object()) malformed(at, fmt::format("'parallel': '{}' is not an object", key));
    for (const auto& [tensor, value] : tensors->items()) {
      if (!value.is_null()) (*errors)[tensor] = read.number(value, key);
    }
  }
  const Json* plan = member(*object, "plan");
  if (plan == nullptr) return record;
  if (!plan->is_object()) malformed(at, "'parallel': 'plan' is not an object");
  if (const Json* owned = member(*plan, "owned")) {
    if (read.array(*owned, "owned").size() != static_cast<size_t>(record.ranks))
      malformed(at, "'parallel': 'owned' must have a list of ranges for each rank");
    for (const Json& ranges : *owned) {
      auto& list = record.owned.emplace_back();
      for (const Json& range : read.array(ranges, "owned")) {
        if (!range.is_array() || range.size() != 2)
          malformed(at, "'parallel': 'owned' must hold [begin, end] pairs");
        list.emplace_back(read.number(range[0], "owned"), read.number(range[1], "owned"));
      }
    }
  }
  if (const Json* rounds = member(*plan, "by_round")) {
    for (const Json& entry : read.array(*rounds, "by_round")) {
      if (!entry.is_object()) malformed(at, "'parallel': an entry of 'by_round' is not an object");
      PlanRound& round = record.plan.emplace_back();
      if (const Json* area = member(entry, "area")) round.area = read.by_rank(*area, "area", record.ranks);
      if (const Json* sent = member(entry, "sent_bytes"))
        round.sent_bytes = read.by_rank(*sent, "sent_bytes", record.ranks);
      if (const Json* moves = member(entry, "moves")) round.moves = read.moves(*moves, record.ranks);
    }
  }
  return record;
}

}  // namespace results_line
}  // namespace longspan::report
