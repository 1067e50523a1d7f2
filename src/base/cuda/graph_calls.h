// Launches that a CUDA graph repeats, and their exchange for others. See "Graph Update" in the CUDA
// programming guide.
#pragma once

#include <functional>
#include <vector>

#include <cuda_runtime_api.h>

#include "longspan/base.h"

namespace longspan::cuda {

// A thread that captures a stream in the strictest mode must not query events or allocate memory, not even
// for something that has nothing to do with the capture. While this object lives, it may.
class OutsideCapture {
 public:
  OutsideCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~OutsideCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  OutsideCapture(const OutsideCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// While this object lives, memory that the thread uses in a captured stream is freed like any other: the
// caller keeps what owns it for as long as the graph may run.
class CallerKeepsCaptured {
 public:
  CallerKeepsCaptured() { ++depth_; }
  ~CallerKeepsCaptured() { --depth_; }
  CallerKeepsCaptured(const CallerKeepsCaptured&) = delete;
  static bool holds() { return depth_ > 0; }

 private:
  static inline thread_local int depth_ = 0;
};

// The kernels that one call has added to a graph, in their order.
struct CapturedKernels {
  cudaGraph_t graph = nullptr;     // null: the stream was not captured
  unsigned long long capture = 0;  // its number; a handle may stand for another graph later
  std::vector<cudaGraphNode_t> nodes;
};

// Runs `call`, which launches kernels in `stream` alone, and finds those that a capture has recorded. Throws
// kUnsupported if it has recorded anything but kernels.
CapturedKernels capture_kernels(Stream stream, const std::function<void()>& call);

// The kernels that `call` launches in the stream that it is given, recorded and not run.
class RecordedKernels {
 public:
  RecordedKernels(const Device& device, const std::function<void(Stream)>& call);
  ~RecordedKernels();
  RecordedKernels(const RecordedKernels&) = delete;

  // Whether these kernels can take the place of others: as many, of the same functions.
  bool fit(const CapturedKernels& others) const;
  // Makes `exec`, instantiated from the graph of `others`, run these kernels from its next launch on, and
  // that graph when it is instantiated again.
  void replace(const CapturedKernels& others, cudaGraphExec_t exec) const;

 private:
  CapturedKernels kernels_;
};

}  // namespace longspan::cuda
