// Parallel loops over all hardware threads.
#pragma once

#include <cstdint>
#include <functional>

namespace longspan {

// The number of CPUs that this process may use, by its affinity and its container's quota.
int available_cpus();

// The number of threads that parallel_for uses: LONGSPAN_THREADS, or available_cpus().
int thread_count();
// For tests and for case isolation; at least 1. If the system cannot start the threads, throws and leaves
// one.
void set_thread_count(int threads);

// Calls body(index, thread) once for each index in [0, count). Indices are handed out one at a time in
// ascending order; `thread` is in [0, thread_count()), and no two concurrent bodies share one. Returns when
// all bodies are done. After an exception no further index is handed out, and the first exception is
// rethrown. A call from inside a body, or while another thread's call uses the pool, runs serially as thread
// 0. A single body leaves the threads to calls from inside it.
void parallel_for(int64_t count, const std::function<void(int64_t index, int thread)>& body);

// While an instance lives, parallel_for calls of this thread run serially: for ranks that are threads of one
// machine.
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
