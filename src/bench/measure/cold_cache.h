// Evicts memory from a CPU's caches, so that a sample begins with caches as cold as in a training step.
#pragma once

#include <span>
#include <string_view>

#include "bench/measure/testbed.h"

namespace longspan::bench {

// Writes back and drops each cache line of the memory from all caches of the machine (clflushopt or clflush
// on x86-64, dc civac on AArch64). Elsewhere a buffer of the size of the last-level cache is swept instead.
void evict_from_caches(std::span<const MemorySpan> memory, size_t cache_bytes);

std::string_view eviction_method();  // "clflushopt", ...

}  // namespace longspan::bench
