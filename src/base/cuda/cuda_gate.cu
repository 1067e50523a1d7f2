#include "base/cuda/cuda.h"
#include "base/cuda/cuda_gate.h"

namespace longspan {

struct CudaGate::Flags {
  volatile uint32_t open = 0, timed_out = 0;
};

namespace {

__device__ uint64_t nanoseconds() {
  uint64_t time = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
  return time;
}

__global__ void wait_for_open(volatile uint32_t* open, volatile uint32_t* timed_out, uint64_t timeout_ns) {
  const uint64_t begin = nanoseconds();
  while (*open == 0) {
    if (nanoseconds() - begin > timeout_ns) {
      *timed_out = 1;
      return;
    }
    __nanosleep(100);
  }
}

}  // namespace

CudaGate::CudaGate(int index) : index_(index) {
  const cuda::DeviceGuard guard(index);
  void* memory = nullptr;
  LONGSPAN_CUDA(cudaHostAlloc(&memory, sizeof(Flags), cudaHostAllocMapped | cudaHostAllocPortable));
  host_ = new (memory) Flags;
  void* seen = nullptr;
  LONGSPAN_CUDA(cudaHostGetDevicePointer(&seen, memory, 0));
  device_ = static_cast<Flags*>(seen);
}

CudaGate::~CudaGate() {
  open();
  cudaFreeHost(host_);
}

void CudaGate::shut(Stream stream, double timeout_s) {
  const cuda::DeviceGuard guard(index_);
  host_->open = 0;
  host_->timed_out = 0;
  wait_for_open<<<1, 1, 0, cuda::raw(stream)>>>(&device_->open, &device_->timed_out,
                                                static_cast<uint64_t>(timeout_s * 1e9));
  LONGSPAN_CUDA_LAUNCHED();
}

void CudaGate::open() {
  host_->open = 1;
}

bool CudaGate::timed_out() const {
  return host_->timed_out != 0;
}

}  // namespace longspan
