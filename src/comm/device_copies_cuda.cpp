#include <deque>

#include "base/cuda.h"
#include "comm/device_copies.h"

namespace longspan {
namespace {

// Copies from different peers go at the same time, else all ranks would read from the same one first.
constexpr int kStreams = 4;

class CudaCopies : public DeviceCopies {
 public:
  explicit CudaCopies(int index) : index_(index) {
    for (int i = 0; i < kStreams; ++i) streams_.emplace_back(index);
    // Without it copies between GPUs go through the host.
    int devices = 0;
    LONGSPAN_CUDA(cudaGetDeviceCount(&devices));
    for (int peer = 0; peer < devices; ++peer) {
      int possible = 0;
      if (peer != index) LONGSPAN_CUDA(cudaDeviceCanAccessPeer(&possible, index, peer));
      if (!possible) continue;
      const cudaError_t status = cudaDeviceEnablePeerAccess(peer, 0);
      if (status == cudaErrorPeerAccessAlreadyEnabled) {
        cudaGetLastError();
      } else {
        LONGSPAN_CUDA(status);
      }
    }
  }

  Mark mark(Stream stream) override {
    auto event = std::make_shared<cuda::Event>(index_, cuda::Event::Timing::kOff);
    event->record(stream);
    return event;
  }

  Stream stream_for(int peer) override { return streams_[static_cast<size_t>(peer % kStreams)]; }

  void wait(Stream stream, const Mark& mark) override {
    std::static_pointer_cast<cuda::Event>(mark)->wait_in(stream);
  }

  void copy(void* to, const void* from, size_t bytes, int peer) override {
    cuda::copy_async(to, from, bytes, stream_for(peer));
  }

  bool done(Stream stream) override {
    const cudaError_t status = cudaStreamQuery(cuda::raw(stream));
    if (status == cudaErrorNotReady) return false;
    LONGSPAN_CUDA(status);
    return true;
  }

 private:
  const int index_;
  std::deque<cuda::OwnedStream> streams_;
};

}  // namespace

std::unique_ptr<DeviceCopies> DeviceCopies::make() {
  int index = 0;
  LONGSPAN_CUDA(cudaGetDevice(&index));
  return std::make_unique<CudaCopies>(index);
}

}  // namespace longspan
