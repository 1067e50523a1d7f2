// A one-thread kernel that spins on the global timer.
#include <cstdint>

#include "base/cuda/cuda.h"
#include "base/cuda/cuda_check.h"
#include "comm/delay.h"

namespace longspan {
namespace {

__global__ void delay_kernel(uint32_t nanoseconds) {
  uint64_t begin = 0, now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  } while (now - begin < nanoseconds);
}

}  // namespace

void delay(Stream stream, double seconds) {
  delay_kernel<<<1, 1, 0, cuda::raw(stream)>>>(static_cast<uint32_t>(seconds * 1e9));
  LONGSPAN_CUDA_LAUNCHED();
}

}  // namespace longspan
