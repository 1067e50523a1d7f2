// Loops over all hardware threads.
#pragma once

#include <cstdint>
#include <functional>

namespace longspan {

// The number of threads that parallel_for uses: LONGSPAN_THREADS, or the CPUs this process may run on.
int thread_count();
void set_thread_count(int threads);  // for tests and for case isolation; at least 1

// Calls body(index, thread) once for each index in [0, count), indices handed out in ascending order, one at
// a time; thread is in [0, thread_count()). Returns when all are done; rethrows the first exception. Not
// reentrant from a body: an inner call runs on its own thread alone.
void parallel_for(int64_t count, const std::function<void(int64_t index, int thread)>& body);

}  // namespace longspan
