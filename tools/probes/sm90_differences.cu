#include <cuda_bf16.h>

#include "sm90_differences.h"

namespace longspan {
namespace {

__global__ void differences(const uint32_t* a, const uint32_t* b, int64_t pairs, double* sums) {
  double wrong = 0, size = 0, bits = 0;
  for (int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x; i < pairs;
       i += int64_t{gridDim.x} * blockDim.x)
    for (int half = 0; half < 2; ++half) {
      const uint32_t x = half == 0 ? a[i] << 16 : a[i] & 0xffff0000u;
      const uint32_t y = half == 0 ? b[i] << 16 : b[i] & 0xffff0000u;
      const float u = __uint_as_float(x), v = __uint_as_float(y);
      wrong += static_cast<double>((u - v) * (u - v));
      size += static_cast<double>(v * v);
      bits += x != y;
    }
  for (int offset = 16; offset > 0; offset /= 2) {
    wrong += __shfl_xor_sync(0xffffffff, wrong, offset);
    size += __shfl_xor_sync(0xffffffff, size, offset);
    bits += __shfl_xor_sync(0xffffffff, bits, offset);
  }
  if (threadIdx.x % 32 == 0) atomicAdd(sums, wrong), atomicAdd(sums + 1, size), atomicAdd(sums + 2, bits);
}

}  // namespace

void add_differences(const void* a, const void* b, int64_t elements, double* sums) {
  differences<<<1024, 256>>>(static_cast<const uint32_t*>(a), static_cast<const uint32_t*>(b), elements / 2,
                             sums);
}

}  // namespace longspan
