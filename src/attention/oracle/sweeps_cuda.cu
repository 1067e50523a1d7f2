// Sums over all elements in a fixed order. Each thread strides over the tensors in fp64, a block reduces its
// threads' sums as a tree, and the host adds the block sums.
#include <vector>

#include "attention/oracle/sweeps_cuda.h"
#include "base/buffer.h"
#include "base/cuda/cuda.h"
#include "base/cuda/element.cuh"
#include "base/error.h"

namespace longspan {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kBlocks = 1024;  // enough to fill a GPU several times

template <class T>
__global__ void squares_kernel(const T* a, const T* b, int64_t elements, double2* sums) {
  double difference = 0, norm = 0;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < elements; i += gridDim.x * kThreads) {
    const double x = cuda::to_f64(a[i]), y = cuda::to_f64(b[i]);
    difference += (x - y) * (x - y);
    norm += y * y;
  }
  __shared__ double2 all[kThreads];
  all[threadIdx.x] = {difference, norm};
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x >= half) continue;
    all[threadIdx.x].x += all[threadIdx.x + half].x;
    all[threadIdx.x].y += all[threadIdx.x + half].y;
  }
  if (threadIdx.x == 0) sums[blockIdx.x] = all[0];
}

void check_dense(const TensorView& t) {
  LONGSPAN_CHECK(t.head_stride == t.head_dim && t.token_stride == t.heads * t.head_dim,
                 "a tensor of strides {} and {}", t.token_stride, t.head_stride);
}

Device current_device() {
  int index = 0;
  LONGSPAN_CUDA(cudaGetDevice(&index));
  Device device;
  device.kind = DeviceKind::kCuda;
  device.index = index;
  return device;
}

}  // namespace

std::pair<double, double> squares_cuda(const TensorView& a, const TensorView& b) {
  check_dense(a);
  check_dense(b);
  LONGSPAN_CHECK(a.dtype == b.dtype && a.elements() == b.elements(), "{} elements and {}", a.elements(),
                 b.elements());
  const Buffer sums(kBlocks * sizeof(double2), current_device());
  LONGSPAN_CUDA(cudaDeviceSynchronize());  // other streams may still write to the tensors
  cuda::with_any_element_type(a.dtype, [&](auto type) {
    using T = decltype(type);
    squares_kernel<T><<<kBlocks, kThreads>>>(static_cast<const T*>(a.data), static_cast<const T*>(b.data),
                                             a.elements(), sums.as<double2>());
  });
  LONGSPAN_CUDA_LAUNCHED();
  std::vector<std::pair<double, double>> parts(kBlocks);
  static_assert(sizeof(parts[0]) == sizeof(double2));
  copy_bytes(parts.data(), DeviceKind::kCpu, sums.data(), DeviceKind::kCuda, kBlocks * sizeof(double2));
  std::pair<double, double> total = {0, 0};
  for (const auto& part : parts) {
    total.first += part.first;
    total.second += part.second;
  }
  return total;
}

}  // namespace longspan
