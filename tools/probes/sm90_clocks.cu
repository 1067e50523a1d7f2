// Reads the cycle counter of every SM. The difference of two readings is the time between them in cycles,
// whatever the clock rate.
#include <cuda_runtime_api.h>

namespace longspan {
namespace {

__global__ void read_clocks(long long* of_unit) {
  unsigned unit;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(unit));
  of_unit[unit] = clock64();
}

}  // namespace

void start_reading_clocks(long long* of_unit, int units, cudaStream_t stream) {
  read_clocks<<<static_cast<unsigned>(units), 32, 0, stream>>>(of_unit);
}

}  // namespace longspan
