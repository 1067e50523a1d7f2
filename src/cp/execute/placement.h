// Where data of one rank's pass can lie at once in its final place, so that it need not be copied there.
#pragma once

#include <vector>

#include "cp/schedule/schedule.h"

namespace longspan {

// Copies that arrive in one round and are read there side by side, with rows of the rank's own or without:
// they are received straight into the region that is read.
struct Landing {
  struct Arrival {
    size_t move;  // number in RankRound::copies_in
    int64_t row;  // the first, in the region's packed order
  };
  Operand what;
  int32_t region;
  std::vector<Arrival> arrivals;
  bool with_own = false;  // some rows are the rank's own
};
std::vector<Landing> landings_of(const Schedule& schedule, const RankRound& round, const Ranges& owned);

// What becomes of an attend's result on this rank: o or dq of its rows, dk and dv of its keys.
struct Result {
  bool first = true, last = true;  // of all attends that share rows with it, which have all of them in common
  bool complete = false;  // once the last has attended, nothing remains to be added here or elsewhere

  bool alone() const { return complete && first && last; }
};
struct Results {
  Result rows, keys;
};
std::vector<std::vector<Results>> results_of(const Schedule& schedule, Direction direction,
                                             const std::vector<RankRound>& rounds);

// By round, by RankRound::taken: is it a complete result of all of the rank's own tokens, to which nothing is
// added, so that it can be received where it belongs?
std::vector<std::vector<bool>> results_in_place(const Schedule& schedule,
                                                const std::vector<RankRound>& rounds, const Ranges& owned);

// Of one round: bytes to make the buffers of its pieces with, for other rounds to use them again. Over a pass
// the largest piece of a round has those of the largest of all rounds, the second largest of the second
// largest, and so on: in a ring over documents each round else asks for a size of its own.
struct Rooms {
  std::vector<size_t> copies_out;    // where they have to be packed
  std::vector<size_t> arriving;      // landings, then what arrives of RankRound::copies_in beside them
  std::vector<size_t> given, taken;  // of RankRound
  std::vector<size_t> rows, keys;    // parts of the results of attends
};
std::vector<Rooms> rooms_of(const Schedule& schedule, const Problem& problem, Direction direction,
                            const std::vector<RankRound>& rounds,
                            const std::vector<std::vector<Landing>>& landings,
                            const std::vector<std::vector<Results>>& results);

}  // namespace longspan
