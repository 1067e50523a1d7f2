// The thread's index, as the compiler takes it or kept in a register.
#pragma once

namespace longspan::sm90 {

// The index in a warp or a warpgroup, of kThreads. Where ptxas lacks registers, it reads the special register
// again, even in inner loops. A kept index is a shuffle's result, which it cannot make again.
template <int kThreads, bool kKept>
__device__ __forceinline__ int thread_index() {
  const int thread = threadIdx.x % kThreads;
  return kKept ? __shfl_sync(0xffffffff, thread, thread % 32) : thread;
}

}  // namespace longspan::sm90
