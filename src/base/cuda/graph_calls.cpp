#include "base/cuda/graph_calls.h"

#include <algorithm>

#include "base/cuda/cuda.h"

namespace longspan::cuda {
namespace {

// The graph that a stream is captured into, and the nodes that the next launch would depend on.
struct Capture {
  explicit Capture(Stream stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaGraphNode_t* last = nullptr;
    const cudaGraphEdgeData* edges = nullptr;
    size_t count = 0;
    LONGSPAN_CUDA(cudaStreamGetCaptureInfo(raw(stream), &status, nullptr, &graph, &last, &edges, &count));
    if (status != cudaStreamCaptureStatusActive) graph = nullptr;
    if (graph != nullptr) nodes.assign(last, last + count);
  }
  cudaGraph_t graph = nullptr;
  std::vector<cudaGraphNode_t> nodes;
};

cudaKernelNodeParams parameters_of(cudaGraphNode_t node) {
  cudaKernelNodeParams parameters{};
  LONGSPAN_CUDA(cudaGraphKernelNodeGetParams(node, &parameters));
  return parameters;
}

}  // namespace

// Launches in one stream form a chain: from its end, each node's only dependency is the launch before.
CapturedKernels capture_kernels(Stream stream, const std::function<void()>& call) {
  const Capture before(stream);
  call();
  if (before.graph == nullptr) return {};
  std::vector<cudaGraphNode_t> at = Capture(stream).nodes;
  CapturedKernels kernels{before.graph, {}};
  while (at.size() == 1 && std::ranges::find(before.nodes, at[0]) == before.nodes.end()) {
    kernels.nodes.push_back(at[0]);
    size_t count = 0;
    LONGSPAN_CUDA(cudaGraphNodeGetDependencies(kernels.nodes.back(), nullptr, nullptr, &count));
    at.resize(count);
    std::vector<cudaGraphEdgeData> edges(count);
    if (count > 0)
      LONGSPAN_CUDA(cudaGraphNodeGetDependencies(kernels.nodes.back(), at.data(), edges.data(), &count));
  }
  std::ranges::reverse(kernels.nodes);
  return kernels;
}

RecordedKernels::RecordedKernels(const Device& device, const std::function<void(Stream)>& call) {
  const DeviceGuard guard(device.index);
  const OwnedStream stream(device.index);
  LONGSPAN_CUDA(cudaStreamBeginCapture(raw(stream), cudaStreamCaptureModeRelaxed));
  try {
    kernels_ = capture_kernels(stream, [&] { call(stream); });
  } catch (...) {
    cudaGraph_t unfinished = nullptr;
    cudaStreamEndCapture(raw(stream), &unfinished);
    if (unfinished != nullptr) cudaGraphDestroy(unfinished);
    throw;
  }
  LONGSPAN_CUDA(cudaStreamEndCapture(raw(stream), &kernels_.graph));
}

RecordedKernels::~RecordedKernels() {
  if (kernels_.graph != nullptr) cudaGraphDestroy(kernels_.graph);
}

bool RecordedKernels::fit(const CapturedKernels& others) const {
  return std::ranges::equal(
      kernels_.nodes, others.nodes, {}, [](cudaGraphNode_t node) { return parameters_of(node).func; },
      [](cudaGraphNode_t node) { return parameters_of(node).func; });
}

void RecordedKernels::replace(const CapturedKernels& others, cudaGraphExec_t exec) const {
  for (size_t i = 0; i < kernels_.nodes.size(); ++i) {
    const cudaKernelNodeParams parameters = parameters_of(kernels_.nodes[i]);
    LONGSPAN_CUDA(cudaGraphExecKernelNodeSetParams(exec, others.nodes[i], &parameters));
  }
}

}  // namespace longspan::cuda
