// When work ends that workers share out among themselves.
#pragma once

#include <cstdint>
#include <span>

namespace longspan {

// The time at which the last of `workers` ends, each of which takes the next item when it has ended one: list
// scheduling after Graham, "Bounds on multiprocessing timing anomalies", 1969. costs[i] > 0 is the time of
// each of `copies` items that follow each other. Takes time and memory in proportion to the result and the
// largest cost.
int64_t list_schedule_end(std::span<const int64_t> costs, int64_t copies, int64_t workers);

}  // namespace longspan
