// fill_normal on a GPU: each thread generates the four numbers of one counter.
#include "base/cuda/cuda.h"
#include "base/cuda/element.cuh"
#include "base/cuda/rng_cuda.h"
#include "base/error.h"
#include "base/philox.h"

namespace longspan::cuda {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void fill_normal_kernel(TensorView tensor, int64_t elements, uint64_t seed, uint64_t stream) {
  const int64_t block = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (4 * block >= elements) return;
  const std::array<float, 4> four = four_normals(static_cast<uint64_t>(block), seed, stream);
  for (int i = 0; i < 4; ++i) {
    const int64_t element = 4 * block + i;
    if (element >= elements) return;
    const int64_t row = element / tensor.head_dim;
    tensor.row<T>(row / tensor.heads, row % tensor.heads)[element % tensor.head_dim] = from_f32<T>(four[i]);
  }
}

template <class T>
void launch(const TensorView& tensor, uint64_t seed, uint64_t stream) {
  const int64_t blocks = (tensor.elements() + 4 * kThreads - 1) / (4 * kThreads);
  fill_normal_kernel<T><<<static_cast<unsigned>(blocks), kThreads>>>(tensor, tensor.elements(), seed, stream);
}

}  // namespace

void fill_normal(const TensorView& tensor, uint64_t seed, uint64_t stream, int index) {
  if (tensor.elements() == 0) return;
  const DeviceGuard guard(index);
  LONGSPAN_CUDA(cudaDeviceSynchronize());
  with_any_element_type(tensor.dtype, [&](auto type) { launch<decltype(type)>(tensor, seed, stream); });
  LONGSPAN_CUDA_LAUNCHED();
  LONGSPAN_CUDA(cudaDeviceSynchronize());
}

}  // namespace longspan::cuda
