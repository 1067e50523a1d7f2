// The buffers that a rank's passes hold, as the executor's pool allocates them (cp/execute/buffer_pool.h).
#pragma once

#include <cstdint>
#include <vector>

#include "cp/schedule/schedule.h"

namespace longspan::simulate {

struct MemoryUse {
  // The bytes that the pool holds after the forward pass and, with kBackward, after the backward pass that
  // follows it, and what the forward pass keeps: what results record as held_bytes.
  int64_t held = 0;
  std::vector<int64_t> by_round;  // of the last pass: the most that is in use at once during each round
};

// By rank. `takes_rows` is as in LinkCost; `merges_parts`: the kernel merges partial results itself.
std::vector<MemoryUse> memory_by_rank(const Schedule& schedule, const Problem& problem, Direction until,
                                      bool takes_rows, bool merges_parts = true);

}  // namespace longspan::simulate
