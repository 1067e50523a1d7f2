// Decides which data of a rank's pass can be received or written directly in its final place, without a copy.
#pragma once

#include <cstddef>
#include <vector>

#include "cp/schedule/schedule.h"

namespace longspan {

// Copies that arrive in one round and are read together in one region, possibly with rows of the rank's own:
// they are received directly into that region.
struct Landing {
  struct Arrival {
    size_t move;  // index in RankRound::copies_in
    int64_t row;  // the first row, in the region's packed order
  };
  Operand what;
  int32_t region;
  std::vector<Arrival> arrivals;
  bool with_own = false;  // some rows are the rank's own
};
std::vector<Landing> landings_of(const Schedule& schedule, const RankRound& round, const Ranges& owned);

// The state of an attend's result on this rank: o or dq of its rows, dk and dv of its keys.
struct Result {
  bool first = true, last = true;  // among the attends that share its rows (always all of them)
  bool complete = false;           // nothing is added after the last attend, here or elsewhere

  bool alone() const { return complete && first && last; }
};
struct Results {
  Result rows, keys;
};
std::vector<std::vector<Results>> results_of(const Schedule& schedule, Direction direction,
                                             const std::vector<RankRound>& rounds);

// By round and index in RankRound::taken: whether the result is complete and of own tokens only, so that it
// can be received in its final place.
std::vector<std::vector<bool>> results_in_place(const Schedule& schedule,
                                                const std::vector<RankRound>& rounds, const Ranges& owned);

// Buffer sizes in bytes for the pieces of one round, chosen so that other rounds can reuse the buffers. Over
// a pass, the largest piece of each round gets the size of the largest of all rounds, the second largest that
// of the second largest, and so on. In a ring over documents each round would otherwise request different
// sizes.
struct Rooms {
  std::vector<size_t> copies_out;    // for packed copies
  std::vector<size_t> arriving;      // landings, then the other arrivals of RankRound::copies_in
  std::vector<size_t> given, taken;  // as in RankRound
  std::vector<size_t> rows, keys;    // partial results of attends
};
std::vector<Rooms> rooms_of(const Schedule& schedule, const Problem& problem, Direction direction,
                            const std::vector<RankRound>& rounds,
                            const std::vector<std::vector<Landing>>& landings,
                            const std::vector<std::vector<Results>>& results);

// What a forward pass leaves to its backward pass, in one block of memory: copies sent with Move::keep, with
// what lands beside them, and o and lse of rows that the rank attends for other owners.
struct Kept {
  struct Place {
    Operand what;
    int32_t region;
    size_t offset;
    int64_t copy_bytes;  // of other ranks' operands in it
  };
  std::vector<Place> places;
  std::vector<std::vector<int32_t>> arriving;  // by round, as Rooms::arriving: index of the place; -1: none
  size_t bytes = 0;                            // of the block

  const Place* of_rows(int32_t region) const;  // the place of o and lse of these rows, if they are kept
};
Kept kept_of(const Schedule& schedule, const Problem& problem, const std::vector<RankRound>& rounds,
             const std::vector<std::vector<Landing>>& landings);

}  // namespace longspan
