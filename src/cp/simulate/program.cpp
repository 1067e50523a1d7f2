#include "cp/simulate/program.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace longspan::simulate {
namespace {

constexpr double kF32 = 4;

// Follows one rank through a pass and writes down its steps.
class RankWriter {
 public:
  RankWriter(const Schedule& schedule, Direction direction, const Problem& problem, const Cluster& cluster,
             const AttendPrice& price, std::vector<RankRound> rounds, int rank, Program& program)
      : schedule_(schedule),
        problem_(problem),
        cluster_(cluster),
        price_(price),
        forward_(direction == Direction::kForward),
        rounds_(std::move(rounds)),
        owned_(schedule.owned[static_cast<size_t>(rank)]),
        steps_(program.steps[static_cast<size_t>(rank)]),
        round_steps_(program.round_steps[static_cast<size_t>(rank)]) {
    for (const RankRound& round : rounds_) {
      for (const Attend& attend : round.attend) ++attends_[attend.q];
      for (const auto* results : {&round.taken, &round.given}) {
        for (const Move& move : *results) note_open(move);
      }
    }
  }

  void write() {
    if (rounds_.empty()) return;
    post_copies(0);
    for (size_t i = 0; i < rounds_.size(); ++i) {
      round_steps_.push_back(i == 0 ? 0 : steps_.size());
      if (cluster_.links.takes_rows && computes_before(i)) touch_memory(StepKind::kOwn, own_rows_beside(i));
      if (moves(rounds_[i].copies_out, rounds_[i].copies_in)) add({StepKind::kArrive, operands_of(i)});
      remember(rounds_[i].copies_in);
      if (i + 1 < rounds_.size()) post_copies(i + 1);
      for (const Attend& attend : rounds_[i].attend) write_attend(attend);
      if (i > 0) collect(i - 1);
      post_results(i);
    }
    collect(rounds_.size() - 1);
    for (size_t i = 0; i < rounds_.size(); ++i) {
      if (!rounds_[i].copies_out.empty()) add({StepKind::kFinish, operands_of(i)});
    }
    convert();
  }

 private:
  static bool moves(const std::vector<Move>& out, const std::vector<Move>& in) {
    return !out.empty() || !in.empty();
  }
  void add(Step step) { steps_.push_back(step); }

  double elements(int32_t region, Operand what) const {
    const Region& r = schedule_.regions[region];
    const auto [first, second] = head_dims_of(what, problem_);
    return static_cast<double>(count(r.tokens) * r.heads.size() * (first + second));
  }
  double element_bytes() const { return static_cast<double>(size_of(problem_.dtype)); }
  static bool of_keys(Operand what) { return what == Operand::kKV || what == Operand::kDkv; }
  double elements(const Move& move) const { return elements(move.region, move.what); }

  // Adds a step of so many bytes read and written, if there are any.
  void touch_memory(StepKind kind, double bytes) {
    if (bytes <= 0) return;
    add({kind, -1, bytes / cluster_.memory.bytes_per_s + cluster_.memory.operation_s});
  }

  // What other ranks add to, or what is added to elsewhere, is sent in fp32, and kept so by the kernel.
  void note_open(const Move& move) {
    if (move.fp32) (of_keys(move.what) ? open_keys_ : open_rows_) = true;
  }

  bool alone(const Attend& attend) const { return !open_rows_ && attends_.at(attend.q) == 1; }

  // Copies that arrived last, in which what is sent on lies.
  void remember(const std::vector<Move>& arrived) {
    constexpr size_t kMost = 8;
    if (arrived.size() > kMost) return;
    for (const Move& move : arrived) {
      if (move.what == Operand::kKV) recent_.push_back(move.region);
    }
    if (recent_.size() > kMost)
      recent_.erase(recent_.begin(), recent_.end() - static_cast<std::ptrdiff_t>(kMost));
  }

  // Whether a region lies in one piece, so that it is sent as it lies.
  bool lies_together(const Move& move) const {
    const Region& region = schedule_.regions[move.region];
    const int64_t all = of_keys(move.what) ? problem_.heads_kv : problem_.heads_q;
    if (!cluster_.links.takes_rows && region.heads.size() != all) return false;
    if (region.tokens.size() == 1 || region.tokens == owned_) return true;
    if (position_of(region.tokens, owned_) >= 0) return true;
    return std::any_of(recent_.begin(), recent_.end(), [&](int32_t piece) {
      return piece == move.region || position_of(region.tokens, schedule_.regions[piece].tokens) >= 0;
    });
  }

  bool computes_before(size_t i) const { return i > 0 && !rounds_[i - 1].attend.empty(); }

  // The bytes read and written when the rank's own keys are copied beside those that arrive for a round.
  double own_rows_beside(size_t i) const {
    double arriving = 0, read = 0;
    for (const Move& move : rounds_[i].copies_in) {
      if (move.what == Operand::kKV) arriving += elements(move);
    }
    for (const Attend& attend : rounds_[i].attend) read += elements(attend.kv, Operand::kKV);
    return arriving > 0 ? 2 * std::max(0.0, read - arriving) * element_bytes() : 0;
  }

  void post_copies(size_t i) {
    const RankRound& round = rounds_[i];
    if (!moves(round.copies_out, round.copies_in)) return;
    double packed = 0;
    int32_t last = -1;
    bool together = false;
    for (const Move& move : round.copies_out) {
      if (move.region != last) together = lies_together(move);
      last = move.region;
      if (!together) packed += 2 * elements(move) * element_bytes();
    }
    if (!cluster_.links.takes_rows) packed += own_rows_beside(i);
    touch_memory(StepKind::kReorder, packed);
    add({StepKind::kPost, operands_of(i)});
  }

  void write_attend(const Attend& attend) {
    Step step{StepKind::kAttend, -1, price_(attend), 0};
    const double rows = elements(attend.q, forward_ ? Operand::kO : Operand::kDq);
    const double keys = elements(attend.kv, Operand::kDkv);
    const double wider = kF32 - element_bytes();  // of a result in fp32
    const bool first = seen_[attend.q]++ == 0, last = seen_[attend.q] == attends_[attend.q];
    double merged = 0, traffic = 0;
    if (forward_) {
      // The kernel merges as it writes, so the longer of reading and writing hides the other.
      traffic = std::max(first ? 0 : kF32 * rows, open_rows_ || !last ? wider * rows : 0);
      if (last && !open_rows_) own_rows_elsewhere(attend, rows);
    } else {
      if (!alone(attend)) {
        traffic += wider * rows;
        if (!first) merged += 3 * kF32 * rows;  // two parts are read, one is written
        if (last) rows_to_convert_ += own_share(attend.q) * rows;
      } else {
        own_rows_elsewhere(attend, rows);
      }
      if (open_keys_) {
        traffic += wider * keys;
        keys_to_convert_ += own_share(attend.kv) * keys;
      }
    }
    const MemoryCost& memory = cluster_.memory;
    step.memory_s =
        traffic / (memory.partial_bytes_per_s > 0 ? memory.partial_bytes_per_s : memory.bytes_per_s);
    add(step);
    touch_memory(StepKind::kMerge, merged);
  }

  // The share of a region's tokens that the rank owns.
  double own_share(int32_t number) const {
    const Ranges& tokens = schedule_.regions[number].tokens;
    if (tokens == owned_) return 1;
    const double all = static_cast<double>(count(tokens));
    return all > 0 ? static_cast<double>(count(intersection(set_of(tokens), set_of(owned_)))) / all : 0;
  }

  // A complete result that holds other ranks' rows as well is copied to the rank's own tensor.
  void own_rows_elsewhere(const Attend& attend, double rows) {
    const Ranges& tokens = schedule_.regions[attend.q].tokens;
    if (tokens == owned_ || position_of(tokens, owned_) >= 0) return;
    rows_to_copy_ += own_share(attend.q) * rows;
  }

  void post_results(size_t i) {
    const RankRound& round = rounds_[i];
    if (!moves(round.given, round.taken)) return;
    double converted = 0;
    for (const Move& move : round.given) {
      const bool partial = of_keys(move.what) ? open_keys_ : open_rows_ || several_attends();
      const bool lent = !partial || move.fp32 || (forward_ && move.what == Operand::kO);
      if (!lent) converted += (kF32 + element_bytes()) * elements(move);
      if (!cluster_.links.takes_rows && !move.fp32) converted += 2 * element_bytes() * elements(move);
    }
    touch_memory(StepKind::kMerge, converted);
    add({StepKind::kPost, results_of(i)});
  }

  bool several_attends() const {
    return std::any_of(attends_.begin(), attends_.end(), [](const auto& each) { return each.second > 1; });
  }

  void collect(size_t i) {
    const RankRound& round = rounds_[i];
    if (!moves(round.given, round.taken)) return;
    add({StepKind::kFinish, results_of(i)});
    double bytes = 0;
    for (const Move& move : round.taken) {
      if (move.fp32) bytes += 3 * kF32 * elements(move);
      if (!move.fp32 && !cluster_.links.takes_rows) bytes += 2 * element_bytes() * elements(move);
    }
    touch_memory(StepKind::kMerge, bytes);
  }

  // The end of the pass: own results in fp32 become final ones.
  void convert() {
    const double narrowed = rows_to_convert_ + keys_to_convert_;
    touch_memory(StepKind::kMerge, narrowed * (kF32 + element_bytes()) + rows_to_copy_ * 2 * element_bytes());
  }

  const Schedule& schedule_;
  const Problem& problem_;
  const Cluster& cluster_;
  const AttendPrice& price_;
  const bool forward_;
  const std::vector<RankRound> rounds_;
  const Ranges& owned_;
  std::vector<Step>& steps_;
  std::vector<size_t>& round_steps_;
  std::map<int32_t, int> attends_, seen_;  // by region of rows
  bool open_rows_ = false, open_keys_ = false;
  std::vector<int32_t> recent_;
  double rows_to_convert_ = 0, keys_to_convert_ = 0, rows_to_copy_ = 0;  // elements
};

void add_flows(std::vector<Flow>& flows, const std::vector<Move>& moves, int32_t exchange,
               const Schedule& schedule, const Problem& problem) {
  const size_t first = flows.size();
  for (const Move& move : moves)
    flows.push_back({exchange, move.src, move.dst, static_cast<double>(bytes_of(move, schedule, problem))});
  std::sort(flows.begin() + static_cast<std::ptrdiff_t>(first), flows.end(),
            [](const Flow& a, const Flow& b) { return std::tie(a.src, a.dst) < std::tie(b.src, b.dst); });
  size_t last = first;  // sums the moves between the same two ranks
  for (size_t i = first; i < flows.size(); ++i) {
    if (i > first && flows[i].src == flows[last - 1].src && flows[i].dst == flows[last - 1].dst) {
      flows[last - 1].bytes += flows[i].bytes;
    } else {
      flows[last++] = flows[i];
    }
  }
  flows.resize(last);
}

}  // namespace

Program program_of(const Schedule& schedule, Direction direction, const Problem& problem,
                   const Cluster& cluster, const AttendPrice& price) {
  const auto& rounds = direction == Direction::kForward ? schedule.forward : schedule.backward;
  Program program;
  program.steps.resize(static_cast<size_t>(schedule.ranks));
  program.round_steps.resize(static_cast<size_t>(schedule.ranks));
  program.exchanges = static_cast<int32_t>(2 * rounds.size());
  for (size_t i = 0; i < rounds.size(); ++i) {
    add_flows(program.flows, rounds[i].in, operands_of(i), schedule, problem);
    add_flows(program.flows, rounds[i].out, results_of(i), schedule, problem);
    program.beside.push_back(i > 0 && !rounds[i - 1].attend.empty());
    program.beside.push_back(std::any_of(rounds.begin() + static_cast<std::ptrdiff_t>(i) + 1, rounds.end(),
                                         [](const Round& later) { return !later.attend.empty(); }));
  }
  auto by_rank = rounds_by_rank(schedule, direction);
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    RankWriter(schedule, direction, problem, cluster, price, std::move(by_rank[static_cast<size_t>(rank)]),
               rank, program)
        .write();
  }
  return program;
}

}  // namespace longspan::simulate
