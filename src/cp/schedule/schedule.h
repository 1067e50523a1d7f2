// A context-parallel strategy as data: who holds what, what travels, and who attends to what, round by round.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "attention/problem.h"
#include "cp/schedule/ranges.h"
#include "longspan/parallel.h"

namespace longspan {

// What a move carries. K and V of a region always travel together.
enum class Operand : uint8_t {
  kQ,    // q
  kKV,   // k and v
  kO,    // o and lse
  kDo,   // the gradient of o
  kDq,   // the gradient of q
  kDkv,  // the gradients of k and v
};
std::string_view name_of(Operand what);  // "q", "kv", ...

// Rows of an operand: tokens in packed order, for a range of its heads (query heads for q, o, do, dq; KV
// heads for kv, dkv).
struct Region {
  Ranges tokens;
  Range heads;
  friend bool operator==(const Region&, const Region&) = default;
};

// A transfer of one region from rank src to rank dst. Of the two lists of a Round it stands in
//  in:  a copy. src holds the region: its own, or a copy that came in an earlier round. dst holds it from
//  then until its
//       last use in this pass; where `keep` is set, to the end of the backward pass.
//  out: a hand-over of what attends of this and earlier rounds have accumulated. dst merges it ((o, lse)
//  pairs) or adds it
//       (gradients) to its own; src has nothing left of it. A region that is not final on src travels as
//       fp32.
struct Move {
  Operand what = Operand::kQ;
  bool keep = false;
  bool fp32 = false;
  int32_t src = 0, dst = 0;
  int32_t region = 0;  // number in Schedule::regions
};

// Rank `rank` attends rows q to keys kv, with the mask mask.gather(q.tokens, kv.tokens) of each head, and
// accumulates: forward o and lse of q; backward dq of q, and dk, dv of kv. Heads form whole groups:
// q.heads.size() is a multiple of kv.heads.size(), and query head number i of q.heads goes with KV head i /
// (ratio) of kv.heads.
struct Attend {
  int32_t rank = 0;
  int32_t q = 0, kv = 0;  // numbers in Schedule::regions
};

struct Round {
  std::vector<Move> in;
  std::vector<Attend> attend;
  std::vector<Move> out;
};

// At the start rank r holds q, k, v of the tokens owned[r], all heads, and before the backward pass also do,
// o and lse of them. At the end it has o, lse (forward), dq, dk, dv (backward) of them, complete, and nothing
// is left elsewhere. What a rank accumulated of o and lse in the forward pass stays with it for the backward
// pass.
struct Schedule {
  std::string strategy;
  int ranks = 0;
  std::vector<Ranges> owned;  // by rank; together every token exactly once
  std::vector<Region> regions;
  std::vector<Round> forward, backward;

  int32_t add_region(Region region);  // its number; equal regions are not searched for
};

// Elements of one move, without lse.
int64_t elements_of(const Move& move, const Schedule& schedule, const Problem& problem);

// Bytes of one move: its elements at the problem's dtype (or fp32), lse with o.
int64_t bytes_of(const Move& move, const Schedule& schedule, const Problem& problem);

// One rank's part of a round.
struct RankRound {
  std::vector<Move> copies_out, copies_in;  // of Round::in
  std::vector<Attend> attend;
  std::vector<Move> given, taken;  // of Round::out
};
std::vector<RankRound> rounds_of(const Schedule& schedule, Direction direction, int rank);
std::vector<std::vector<RankRound>> rounds_by_rank(const Schedule& schedule, Direction direction);

// For each copy that a rank receives, in order: the last round of this pass that uses it (for kept ones the
// number of rounds). Data leaves for a round while the round before is computed, and counts as used in that;
// its buffer is free once the next round's data has arrived.
std::vector<int32_t> last_uses(const Schedule& schedule, const std::vector<RankRound>& rounds);

// Throws an internal Error that names rank, round and region unless: owned tokens partition the sequence;
// each move's source holds what it sends; each attend's rank holds what it reads; each pair of (query head,
// row, column) that is visible is attended exactly once and no pair twice, forward and backward; every result
// ends at its owner.
void check(const Schedule& schedule, const Problem& problem);

}  // namespace longspan
