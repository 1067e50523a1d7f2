// OpenBLAS, made ready for calls from our own threads.
#pragma once

namespace longspan {

// Sets OpenBLAS to one thread per call, and reserves the address space of its buffers where that is limited
// (ulimit -v): OpenBLAS itself waits for ever if it gets none. Call it before calling BLAS, on each thread
// that is not of parallel_for. Throws kOutOfMemory.
void prepare_blas();

}  // namespace longspan
