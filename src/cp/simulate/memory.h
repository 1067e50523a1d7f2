// The buffers that a rank's passes hold, as the executor's pool allocates them (cp/execute/buffer_pool.h).
#pragma once

#include <cstdint>

#include "cp/schedule/schedule.h"

namespace longspan::simulate {

// The bytes that the pool holds after the forward pass and, with kBackward, after the backward pass that
// follows it: what results record as held_bytes. `takes_rows` is as in LinkCost; `merges_parts`: the kernel
// merges partial results itself.
int64_t held_bytes(const Schedule& schedule, const Problem& problem, int rank, Direction until,
                   bool takes_rows, bool merges_parts = true);

}  // namespace longspan::simulate
