#include "base/cuda/graph_calls.h"

#include <algorithm>

#include "base/cuda/cuda.h"
#include "base/error.h"

namespace longspan::cuda {
namespace {

// The graph that a stream is captured into, and the nodes that the next launch would depend on.
struct Capture {
  explicit Capture(Stream stream) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    const cudaGraphNode_t* last = nullptr;
    const cudaGraphEdgeData* edges = nullptr;
    size_t count = 0;
#if CUDART_VERSION >= 13000
    LONGSPAN_CUDA(cudaStreamGetCaptureInfo(raw(stream), &status, &number, &graph, &last, &edges, &count));
#else
    LONGSPAN_CUDA(cudaStreamGetCaptureInfo_v3(raw(stream), &status, &number, &graph, &last, &edges, &count));
#endif
    if (status != cudaStreamCaptureStatusActive) graph = nullptr;
    if (graph != nullptr) nodes.assign(last, last + count);
  }
  cudaGraph_t graph = nullptr;
  unsigned long long number = 0;
  std::vector<cudaGraphNode_t> nodes;
};

std::vector<cudaGraphNode_t> dependencies_of(cudaGraphNode_t node) {
#if CUDART_VERSION >= 13000
  const auto get = cudaGraphNodeGetDependencies;
#else
  const auto get = cudaGraphNodeGetDependencies_v2;
#endif
  size_t count = 0;
  LONGSPAN_CUDA(get(node, nullptr, nullptr, &count));
  std::vector<cudaGraphNode_t> nodes(count);
  std::vector<cudaGraphEdgeData> edges(count);
  if (count > 0) LONGSPAN_CUDA(get(node, nodes.data(), edges.data(), &count));
  return nodes;
}

void need_kernel(cudaGraphNode_t node) {
  cudaGraphNodeType type = cudaGraphNodeTypeKernel;
  LONGSPAN_CUDA(cudaGraphNodeGetType(node, &type));
  if (type != cudaGraphNodeTypeKernel)
    throw Error(ErrorKind::kUnsupported,
                "a graph can follow another plan only if the plan launches nothing but kernels", __FILE__,
                __LINE__, "");
}

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
  CapturedKernels kernels{before.graph, before.number, {}};
  while (at.size() == 1 && std::ranges::find(before.nodes, at[0]) == before.nodes.end()) {
    need_kernel(at[0]);
    kernels.nodes.push_back(at[0]);
    at = dependencies_of(at[0]);
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
    LONGSPAN_CUDA(cudaGraphKernelNodeSetParams(others.nodes[i], &parameters));
  }
}

}  // namespace longspan::cuda
