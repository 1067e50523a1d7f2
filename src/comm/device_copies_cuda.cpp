// Copies between GPUs: streams, events, and copies by copy engines or by a kernel.
#include <deque>

#include "base/cuda/cuda.h"
#include "comm/device_copies.h"
#include "comm/pull.h"

namespace longspan {
namespace {

class CudaCopies : public DeviceCopies {
 public:
  CudaCopies(int index, int rank) : index_(index), rank_(rank) {
    for (int i = 0; i <= kPeerStreams; ++i) streams_.emplace_back(index);
    // Without peer access, copies between GPUs go through host memory.
    int devices = 0;
    LONGSPAN_CUDA(cudaGetDeviceCount(&devices));
    for (int peer = 0; peer < devices; ++peer) {
      int possible = 0;
      if (peer != index) LONGSPAN_CUDA(cudaDeviceCanAccessPeer(&possible, index, peer));
      if (peer != index && !possible) can_pull_ = false;
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

  Stream stream_for(int peer) override { return streams_[static_cast<size_t>(stream_number(peer, rank_))]; }

  void wait(Stream stream, const Mark& mark) override {
    std::static_pointer_cast<cuda::Event>(mark)->wait_in(stream);
  }

  void copy(const RowCopy& copy, int peer) override {
    if (copy.rows == 1) {
      cuda::copy_async(copy.to, copy.from, copy.row_bytes, stream_for(peer));
    } else {
      LONGSPAN_CUDA(cudaMemcpy2DAsync(copy.to, copy.to_stride, copy.from, copy.from_stride, copy.row_bytes,
                                      copy.rows, cudaMemcpyDefault, cuda::raw(stream_for(peer))));
    }
  }

  bool can_pull() const override { return can_pull_; }
  void pull(std::span<const RowCopy> copies, Stream stream) override { pull_rows(copies, stream); }

  bool done(Stream stream) override {
    const cudaError_t status = cudaStreamQuery(cuda::raw(stream));
    if (status == cudaErrorNotReady) return false;
    LONGSPAN_CUDA(status);
    return true;
  }

 private:
  const int index_, rank_;
  bool can_pull_ = true;
  std::deque<cuda::OwnedStream> streams_;
};

}  // namespace

std::unique_ptr<DeviceCopies> DeviceCopies::make(int rank) {
  int index = 0;
  LONGSPAN_CUDA(cudaGetDevice(&index));
  return std::make_unique<CudaCopies>(index, rank);
}

}  // namespace longspan
