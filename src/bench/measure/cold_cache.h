// Evicts memory from a CPU's caches, so that a sample starts with cold caches, as in a training step.
#pragma once

#include <span>
#include <string_view>

#include "bench/measure/testbed.h"

namespace longspan::bench {

// Writes back and invalidates each cache line of the memory in all caches of the machine (clflushopt or
// clflush on x86-64, dc civac on AArch64). On other CPUs it overwrites a buffer larger than the last-level
// cache instead.
void evict_from_caches(std::span<const MemorySpan> memory, size_t cache_bytes);

std::string_view eviction_method();  // "clflushopt", ...

}  // namespace longspan::bench
