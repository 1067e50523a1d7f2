// The counting oracle's tensors on a GPU: each thread writes one row or scans 16 bytes.
#include <algorithm>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "attention/oracle/counting_tensors_cuda.h"
#include "attention/oracle/slots.h"
#include "base/buffer.h"
#include "base/cuda/cuda.h"
#include "base/error.h"

namespace longspan::cuda {
namespace {

constexpr int kThreads = 256;
constexpr unsigned long long kNone = ~0ULL;

// Selects the device that holds the tensor and waits until it is idle.
class OnDeviceOf {
 public:
  explicit OnDeviceOf(const TensorView& tensor) : guard_(device_of(tensor.data)) {
    LONGSPAN_CUDA(cudaDeviceSynchronize());
    device_.kind = DeviceKind::kCuda;
    LONGSPAN_CUDA(cudaGetDevice(&device_.index));
  }
  Buffer buffer(size_t bytes) const { return Buffer(bytes, device_); }

 private:
  static int device_of(const void* data) {
    cudaPointerAttributes attributes{};
    LONGSPAN_CUDA(cudaPointerGetAttributes(&attributes, data));
    return attributes.device;
  }
  DeviceGuard guard_;
  Device device_;
};

void finish() {
  LONGSPAN_CUDA(cudaGetLastError());
  LONGSPAN_CUDA(cudaDeviceSynchronize());
}

unsigned blocks_for(int64_t items) {
  return static_cast<unsigned>((items + kThreads - 1) / kThreads);
}

__device__ void set(const TensorView& tensor, int64_t row, int64_t d, double x) {
  const int64_t at = row * tensor.head_dim + d;
  switch (tensor.dtype) {
    case DType::kF32:
      static_cast<float*>(tensor.data)[at] = static_cast<float>(x);
      break;
    case DType::kBF16:
      static_cast<__nv_bfloat16*>(tensor.data)[at] = __float2bfloat16_rn(static_cast<float>(x));
      break;
    case DType::kF16:
      static_cast<__half*>(tensor.data)[at] = __float2half_rn(static_cast<float>(x));
      break;
    case DType::kF64:
      static_cast<double*>(tensor.data)[at] = x;
      break;
  }
}

__global__ void write_slots_kernel(TensorView tensor, int64_t first, int64_t slots) {
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= tensor.tokens * tensor.heads) return;
  for (int64_t d = 0; d < first; ++d) set(tensor, row, d, 1);
  for (int kind = 0; kind < kSlotKinds; ++kind) {
    set(tensor, row, first + slot_of(row / tensor.heads, row % tensor.heads, kind, slots), 1);
  }
}

__global__ void write_first_kernel(TensorView tensor, const double* values) {
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row < tensor.tokens * tensor.heads) set(tensor, row, 0, values[row]);
}

// `even` and `odd` clear the sign bits in the halves of a 64-bit word: a number is 0 if all other bits are.
__global__ void first_nonzero_kernel(const uint4* words, int64_t count, uint32_t even, uint32_t odd,
                                     unsigned long long* first) {
  const int64_t step = int64_t{gridDim.x} * kThreads;
  for (int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x; i < count; i += step) {
    const uint4 w = words[i];
    if (((w.x & even) | (w.y & odd) | (w.z & even) | (w.w & odd)) == 0) continue;
    atomicMin(first, static_cast<unsigned long long>(i));
    return;  // later words cannot lower the result
  }
}

}  // namespace

void write_slots(const TensorView& tensor, int64_t first, int64_t slots) {
  if (tensor.elements() == 0) return;
  const OnDeviceOf device(tensor);
  LONGSPAN_CUDA(cudaMemset(tensor.data, 0, tensor.bytes()));
  write_slots_kernel<<<blocks_for(tensor.tokens * tensor.heads), kThreads>>>(tensor, first, slots);
  finish();
}

void write_first_elements(const TensorView& tensor, const std::vector<double>& values) {
  if (tensor.elements() == 0) return;
  const OnDeviceOf device(tensor);
  const Buffer memory = device.buffer(values.size() * sizeof(double));
  LONGSPAN_CUDA(cudaMemcpy(memory.data(), values.data(), memory.bytes(), cudaMemcpyHostToDevice));
  LONGSPAN_CUDA(cudaMemset(tensor.data, 0, tensor.bytes()));
  write_first_kernel<<<blocks_for(tensor.tokens * tensor.heads), kThreads>>>(tensor, memory.as<double>());
  finish();
}

int64_t first_nonzero(const TensorView& tensor) {
  constexpr size_t kWord = sizeof(uint4);
  const size_t size = size_of(tensor.dtype);
  if (tensor.elements() == 0) return -1;
  LONGSPAN_CHECK(tensor.bytes() % kWord == 0 && reinterpret_cast<uintptr_t>(tensor.data) % kWord == 0,
                 "{} bytes at {} are not made of {}", tensor.bytes(), tensor.data, kWord);
  const OnDeviceOf device(tensor);
  const Buffer memory = device.buffer(sizeof kNone);
  LONGSPAN_CUDA(cudaMemset(memory.data(), 0xff, memory.bytes()));
  const uint32_t odd = size == 2 ? 0x7fff7fff : 0x7fffffff;  // the sign of a double is in its second half
  const uint32_t even = size == 8 ? 0xffffffff : odd;
  const auto words = static_cast<int64_t>(tensor.bytes() / kWord);
  const unsigned blocks = std::min(blocks_for(words), 4096u);
  first_nonzero_kernel<<<blocks, kThreads>>>(static_cast<const uint4*>(tensor.data), words, even, odd,
                                             memory.as<unsigned long long>());
  finish();
  unsigned long long word = kNone;
  LONGSPAN_CUDA(cudaMemcpy(&word, memory.data(), sizeof word, cudaMemcpyDeviceToHost));
  if (word == kNone) return -1;
  // Find the nonzero element within the word.
  unsigned char bytes[kWord];
  LONGSPAN_CUDA(cudaMemcpy(bytes, static_cast<const unsigned char*>(tensor.data) + word * kWord, kWord,
                           cudaMemcpyDeviceToHost));
  for (size_t i = 0; i < kWord / size; ++i) {
    unsigned char any = bytes[(i + 1) * size - 1] & 0x7f;
    for (size_t j = 0; j + 1 < size; ++j) any |= bytes[i * size + j];
    if (any != 0) return static_cast<int64_t>(word * (kWord / size) + i);
  }
  return -1;
}

}  // namespace longspan::cuda
