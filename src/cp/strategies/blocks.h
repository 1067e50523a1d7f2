// What the strategies are built of: a grid of ranks (heads x context), the exchanges within it, and the
// adjoint.
#pragma once

#include <vector>

#include "cp/strategies/sharding.h"
#include "cp/strategies/strategy.h"

namespace longspan {

// u x r ranks: `head` in [0, u) says which heads a rank attends with, `context` in [0, r) which tokens' keys
// it begins with. The tokens of a context position are dealt in u consecutive slices to its ranks. u = 1 is a
// plain ring, r = 1 is Ulysses.
class Grid {
 public:
  Grid(const Problem& problem, int heads, int contexts, Placement placement, Sharding sharding);

  int heads() const { return heads_; }
  int contexts() const { return contexts_; }
  int rank(int head, int context) const {
    return placement_ == Placement::kHeadFirst ? context * heads_ + head : head * contexts_ + context;
  }
  const Ranges& tokens(int context) const { return tokens_[static_cast<size_t>(context)]; }
  Ranges owned(int head, int context) const;

  // Query heads of one head position, and the KV heads that they read. KV heads are split whole where u
  // divides their number; else query heads are split evenly and KV heads are replicated where a group is
  // divided.
  Range query_heads(int head) const;
  Range kv_heads(int head) const;
  bool replicates_kv() const;

  // The same heads as pairs of whole groups, as Attend needs them: one pair where no group is divided.
  struct Heads {
    Range q, kv;
  };
  std::vector<Heads> groups(int head) const;

 private:
  const Problem& problem_;
  int heads_, contexts_;
  Placement placement_;
  std::vector<Ranges> tokens_;
};

// A schedule with the owners filled in.
Schedule begin_schedule(std::string_view strategy, const Grid& grid);

// The all-to-all of Ulysses within each context position: q and kv from token owners to head owners, kept;
// and back.
void add_to_heads(Round& round, Schedule& schedule, const Grid& grid, std::span<const Operand> operands);
void add_to_owners(Round& round, Schedule& schedule, const Grid& grid, std::span<const Operand> results);

// The order in which the KV of one context position visits the others. A ring of w windows of i inner
// positions visits a window's positions one after the other and goes over to the next window from its first;
// w = 1 is the plain ring.
struct RingOrder {
  int windows = 1, inner = 1;
  int steps() const { return windows * inner; }
  int position(int origin, int step) const;
  int source_step(int step) const;  // from where it comes: the step at which the sender had it
  int send_round(int step) const;   // the first round at which it can travel: outer hops are sent ahead
};

// The rounds of a ring over context positions, forward and backward: appends to schedule.forward and
// schedule.backward from their round number `first` on. KV travels again in the backward pass, and its
// gradient goes along behind it, from one attending rank to the next, and home.
void add_ring(Schedule& schedule, const Problem& problem, const Grid& grid, RingOrder order,
              bool skip_unneeded);

// The backward pass of a schedule whose copies all come straight from their owners: copies that were not kept
// travel again, do goes where o came from, and the gradients return the way the copies came. dq_final,
// dkv_final: no two ranks have parts of the same row.
void add_adjoint(Schedule& schedule, bool dq_final, bool dkv_final);

}  // namespace longspan
