// A context-parallel strategy as data: which rank holds, sends and attends to what, round by round.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "attention/problem.h"
#include "cp/schedule/ranges.h"
#include "cp/schedule/token_list.h"
#include "longspan/parallel.h"

namespace longspan {

// The operand of a move. K and V of a region always travel together.
enum class Operand : uint8_t {
  kQ,    // q
  kKV,   // k and v
  kO,    // o and lse
  kDo,   // the gradient of o
  kDq,   // the gradient of q
  kDkv,  // the gradients of k and v
};
std::string_view name_of(Operand what);  // "q", "kv", ...

// The head dimensions of the operand's tensors. The second is 0 if it is one tensor, not a pair.
std::array<int64_t, 2> head_dims_of(Operand what, const Problem& problem);

// Whether each row and head of the operand has a float beside it: lse with o and, if the loss depends on lse,
// its gradient with do.
bool has_lse(Operand what, const Problem& problem);

// Rows of an operand: tokens in packed order, for a range of its heads (query heads for q, o, do, dq; KV
// heads for kv, dkv).
struct Region {
  TokenList tokens;
  Range heads;
  friend bool operator==(const Region&, const Region&) = default;
};

// Sends one region from rank src to rank dst.
//
// In Round::in it is a copy. src holds the region as its own or as a copy from an earlier round. dst holds
// the copy until its last use in this pass or, if `keep` is set, for the backward pass, too.
//
// In Round::out it hands over results accumulated by attends of this and earlier rounds. dst merges ((o, lse)
// pairs) or adds (gradients) them to its own; src no longer holds them. A region that is not final on src is
// sent in fp32.
struct Move {
  Operand what = Operand::kQ;
  bool keep = false;
  bool fp32 = false;
  int32_t src = 0, dst = 0;
  int32_t region = 0;  // index in Schedule::regions
};

// Rank `rank` attends rows q to keys kv, with the mask mask.gather(q.tokens, kv.tokens) of each head, and
// accumulates o and lse of q (forward), or dq of q and dk, dv of kv (backward). Heads form whole groups:
// q.heads.size() is a multiple of kv.heads.size(), and query head number i of q.heads uses KV head i / ratio
// of kv.heads.
struct Attend {
  int32_t rank = 0;
  int32_t q = 0, kv = 0;  // indices in Schedule::regions
};

struct Round {
  std::vector<Move> in;
  std::vector<Attend> attend;
  std::vector<Move> out;
};

// Initially rank r holds q, k, v of the tokens owned[r], all heads; before the backward pass also do, o and
// lse. At the end it holds the complete o, lse (forward) and dq, dk, dv (backward) of these tokens, and no
// results remain elsewhere. The o and lse that a rank accumulated in the forward pass remain available to its
// backward pass.
struct Schedule {
  std::string strategy;
  int ranks = 0;
  std::vector<Ranges> owned;  // by rank; together every token exactly once
  std::vector<Region> regions;
  std::vector<Round> forward, backward;

  int32_t add_region(Region region);  // returns its index; does not search for an equal region
};

// The elements of one move, without lse or its gradient.
int64_t elements_of(const Move& move, const Schedule& schedule, const Problem& problem);

// The bytes of one move: its elements in the problem's dtype (or fp32), plus lse or its gradient.
int64_t bytes_of(const Move& move, const Schedule& schedule, const Problem& problem);

// One rank's part of a round.
struct RankRound {
  std::vector<Move> copies_out, copies_in;  // of Round::in
  std::vector<Attend> attend;
  std::vector<Move> given, taken;  // of Round::out
};
std::vector<RankRound> rounds_of(const Schedule& schedule, Direction direction, int rank);
// kUsesOfCopies: only what last_uses reads. `given` and `taken` stay empty, and `copies_out` has only moves
// that can extend the use of a copy: most of a large schedule is left out.
enum class RoundParts : uint8_t { kAll, kUsesOfCopies };
std::vector<std::vector<RankRound>> rounds_by_rank(const Schedule& schedule, Direction direction,
                                                   RoundParts parts = RoundParts::kAll);

// For each copy that a rank receives, in order: the last round of this pass that uses it (for kept copies,
// the number of rounds). Data for a round is sent during the round before, which counts as its use; the
// buffer is free once the next round's data has arrived.
std::vector<int32_t> last_uses(const Schedule& schedule, const std::vector<RankRound>& rounds);

// Throws an internal Error that names rank, round and region unless: the owned tokens partition the sequence;
// each move's source holds what it sends; each attend's rank holds what it reads; each visible (query head,
// row, column) is attended exactly once and no pair twice, forward and backward; and every result ends at its
// owner.
void check(const Schedule& schedule, const Problem& problem);

}  // namespace longspan
