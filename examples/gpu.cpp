// Causal attention in bf16 on the first CUDA device, on this program's own memory and stream.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime_api.h>
#include <longspan/attention.h>

using namespace longspan;

int main() {
  const std::vector<Device> all = devices();
  if (all.size() < 2) {
    std::printf("skipped: %s\n", no_cuda_reason().c_str());
    return 0;
  }
  const Device& gpu = all[1];
  Problem problem;
  problem.tokens_q = problem.tokens_kv = 4096;
  problem.heads_q = 32;
  problem.heads_kv = 8;
  problem.head_dim = 128;
  problem.dtype = DType::kBF16;
  problem.set_mask(Mask::window(4096, kUnboundedAbove, 0));
  const auto plan = make_plan(problem, gpu, Direction::kForward);

  const auto tensor = [&](int64_t heads) {
    TensorView view = TensorView::contiguous(nullptr, DType::kBF16, 4096, heads, 128);
    if (cudaMalloc(&view.data, view.bytes()) != cudaSuccess) std::abort();
    cudaMemset(view.data, 0, view.bytes());  // q = 0: exp(lse) counts visible keys
    return view;
  };
  cudaStream_t stream = nullptr;
  cudaStreamCreate(&stream);
  ForwardArgs args;
  args.q = tensor(32), args.k = tensor(8), args.v = tensor(8), args.o = tensor(32);
  const Buffer lse(32 * 4096 * sizeof(float), gpu);
  const Buffer workspace(plan->workspace_bytes(Direction::kForward), gpu);
  args.lse = lse.as<float>();
  args.workspace = workspace.data();
  plan->forward(args, Stream{stream});

  std::vector<float> host(4096);
  cudaMemcpyAsync(host.data(), lse.data(), host.size() * sizeof(float), cudaMemcpyDeviceToHost, stream);
  cudaStreamSynchronize(stream);
  std::printf("%s: the last row sees %.0f keys\n", gpu.name.c_str(),
              std::exp(static_cast<double>(host.back())));
}
