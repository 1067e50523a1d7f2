// Loops over all hardware threads.
#pragma once

#include <cstdint>
#include <functional>

namespace longspan {

// The CPUs this process may run on, by its affinity and by its container's quota.
int available_cpus();

// The number of threads that parallel_for uses: LONGSPAN_THREADS, or available_cpus().
int thread_count();
void set_thread_count(int threads);  // for tests and for case isolation; at least 1

// Calls body(index, thread) once for each index in [0, count), indices handed out in ascending order, one at
// a time; thread is in [0, thread_count()), and no two bodies run at once with the same one. Returns when all
// are done; after an exception no further index is handed out, and the first exception is rethrown. A call
// from inside a body, or while another thread's call has the pool, runs on its own thread alone, as thread 0.
void parallel_for(int64_t count, const std::function<void(int64_t index, int thread)>& body);

// While one lives, parallel_for of this thread runs on it alone: for threads that are ranks of one machine.
class AloneScope {
 public:
  AloneScope();
  ~AloneScope();
  AloneScope(const AloneScope&) = delete;
  AloneScope& operator=(const AloneScope&) = delete;

 private:
  bool before_;
};

}  // namespace longspan
