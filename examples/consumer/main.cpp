// Attention over two packed documents of 3 and 5 tokens, each token seeing its own document's past. With
// every query zero all scores are equal: a row's lse is the logarithm of the number of keys that it sees.
#include <cmath>
#include <cstdio>
#include <memory>
#include <vector>

#include "attention/kernel.h"
#include "base/buffer.h"
#include "kernels/registry.h"
#include "mask/mask.h"
#include "record/build_info.h"

int main() {
  using namespace longspan;

  // Rows and columns [0, 3), then [3, 8); column - row at most 0.
  const Mask mask(8, 8, {{{0, 3}, {0, 3}, kUnboundedBelow, 0}, {{3, 8}, {3, 8}, kUnboundedBelow, 0}});
  std::printf("longspan %s: %lld visible pairs\n", build_info().version.data(),
              static_cast<long long>(mask.area()));

  Problem problem;
  problem.tokens_q = problem.tokens_kv = 8;
  problem.heads_q = 2;
  problem.heads_kv = 1;
  problem.head_dim = 16;
  problem.masks = std::make_shared<const HeadMasks>(HeadMasks{mask});
  problem.check();

  const Kernel& kernel = kernel_from_name("cpu-flash");
  const Device device = cpu_device();
  if (const Support support = kernel.supports(problem, Direction::kForward, device); !support) {
    std::printf("%s\n", support.reason.c_str());
    return 1;
  }
  // Planned once for a mask; good for every layer and step after that.
  const std::unique_ptr<Plan> plan = kernel.plan(problem, device);
  const Buffer workspace(plan->workspace_bytes(Direction::kForward), device);

  std::vector<float> q(8 * 2 * 16, 0), k(8 * 16, 1), v(8 * 16, 1), o(q.size()), lse(2 * 8);
  ForwardArgs args;
  args.q = TensorView::contiguous(q.data(), DType::kF32, 8, 2, 16);
  args.k = TensorView::contiguous(k.data(), DType::kF32, 8, 1, 16);
  args.v = TensorView::contiguous(v.data(), DType::kF32, 8, 1, 16);
  args.o = TensorView::contiguous(o.data(), DType::kF32, 8, 2, 16);
  args.lse = lse.data();
  args.workspace = workspace.data();
  plan->forward(args, Stream{});

  for (int row = 0; row < 8; ++row)
    std::printf("row %d sees %.0f keys\n", row, std::exp(static_cast<double>(lse[static_cast<size_t>(row)])));
}
