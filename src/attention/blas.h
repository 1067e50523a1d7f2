// OpenBLAS, made ready for calls from our own threads.
#pragma once

namespace longspan {

// Sets OpenBLAS to one thread per call, and reserves the address space of its buffers where that is limited
// (ulimit -v): OpenBLAS itself waits for ever if it gets none. Call it before calling BLAS, on each thread
// that is not of parallel_for. Throws kOutOfMemory.
void prepare_blas();

// Prepares OpenBLAS, and gives it threads of its own for a large product. No other thread may call BLAS
// meanwhile. Throws kOutOfMemory where address space is limited and their stacks do not fit: OpenBLAS waits
// for ever for a thread that it could not start.
class BlasThreads {
 public:
  explicit BlasThreads(int threads);
  ~BlasThreads();
  BlasThreads(const BlasThreads&) = delete;
  BlasThreads& operator=(const BlasThreads&) = delete;
};

}  // namespace longspan
