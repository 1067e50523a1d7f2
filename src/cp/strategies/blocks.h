// The building blocks of the strategies: a grid of ranks (heads x context), the exchanges within it, and the
// adjoint.
#pragma once

#include <vector>

#include "cp/strategies/sharding.h"
#include "cp/strategies/strategy.h"

namespace longspan {

// A grid of u x r ranks. `head` in [0, u) selects a rank's heads, and `context` in [0, r) the tokens whose
// keys it starts with. The tokens of a context position are split into u consecutive slices, one per rank.
// u = 1 is a plain ring, r = 1 is Ulysses. With `owned`, the tokens of a context position are those of its
// ranks.
class Grid {
 public:
  Grid(const Problem& problem, int heads, int contexts, Placement placement, Sharding sharding,
       std::span<const Ranges> owned);

  int heads() const { return heads_; }
  int contexts() const { return contexts_; }
  int rank(int head, int context) const {
    return placement_ == Placement::kHeadFirst ? context * heads_ + head : head * contexts_ + context;
  }
  const Ranges& tokens(int context) const { return tokens_[static_cast<size_t>(context)]; }
  const Ranges& owned(int head, int context) const {
    return owned_[static_cast<size_t>(rank(head, context))];
  }

  // The query heads of a head position, and the KV heads that they read. If u divides the number of KV heads,
  // KV heads are split whole. Otherwise query heads are split evenly, and a KV head is replicated if its
  // group is divided.
  Range query_heads(int head) const;
  Range kv_heads(int head) const;
  bool replicates_kv() const;

  // The same heads as pairs of whole groups, as Attend needs them. One pair if no group is divided.
  struct Heads {
    Range q, kv;
  };
  std::vector<Heads> groups(int head) const;

 private:
  const Problem& problem_;
  int heads_, contexts_;
  Placement placement_;
  std::vector<Ranges> tokens_;  // by context position
  std::vector<Ranges> owned_;   // by rank
};

// A schedule with the owners filled in.
Schedule begin_schedule(std::string_view strategy, const Grid& grid);

// The all-to-alls of Ulysses within each context position. add_to_heads sends operands from token owners to
// head owners, where they are kept; add_to_owners sends results back.
void add_to_heads(Round& round, Schedule& schedule, const Grid& grid, std::span<const Operand> operands);
void add_to_owners(Round& round, Schedule& schedule, const Grid& grid, std::span<const Operand> results);

// The order in which the KV of one context position visits the others. A ring of w windows with i inner
// positions visits the positions of a window one after another. It moves to the next window from the first
// position it visited in the current one. w = 1 is the plain ring.
struct RingOrder {
  int windows = 1, inner = 1;
  int steps() const { return windows * inner; }
  int position(int origin, int step) const;
  int source_step(int step) const;  // the step at which the sender had it
  int send_round(int step) const;   // the first round in which it can be sent: outer hops are sent early
};

// Adds the rounds of a ring over context positions to schedule.forward and schedule.backward. KV is sent
// again in the backward pass. Its gradient follows it from one attending rank to the next, and then to its
// owner.
void add_ring(Schedule& schedule, const Problem& problem, const Grid& grid, RingOrder order,
              bool skip_unneeded);

// Adds the backward pass of a schedule whose copies all come directly from their owners. Copies that were not
// kept are sent again, do goes to the ranks that sent o, and gradients return the way the copies came.
// dq_final and dkv_final say that no two ranks have parts of the same row.
void add_adjoint(Schedule& schedule, bool dq_final, bool dkv_final);

}  // namespace longspan
