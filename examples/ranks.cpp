// Causal attention over 1,024 tokens on four ranks, which are threads of this process. Each rank holds its
// own tokens, and the ranks exchange keys and values. Ranks in separate processes only create the Group
// differently.
#include <cmath>
#include <cstdio>
#include <mutex>
#include <vector>

#include <longspan/parallel.h>

using namespace longspan;

int main() {
  Problem problem;
  problem.tokens_q = problem.tokens_kv = 1024;
  problem.heads_q = problem.heads_kv = 4;
  problem.head_dim = 32;
  problem.set_mask(Mask::window(1024, kUnboundedAbove, 0));

  std::mutex printing;
  double keys = 0;  // of the first head
  run_ranks(Group::threads(4), [&](const Group& group) {
    ParallelAttention attention(problem, {.strategy = "ring-p2p"}, group, cpu_device(), Direction::kForward);
    const int64_t tokens = attention.token_count();

    // This rank's rows of q, k and v, in the order of attention.tokens(). With q = 0, exp(lse) counts visible
    // keys.
    const auto size = static_cast<size_t>(tokens * 4 * 32);
    std::vector<float> q(size, 0), k(size, 1), v(size, 1), o(size), lse(static_cast<size_t>(4 * tokens));
    const auto view = [&](std::vector<float>& data) {
      return TensorView::contiguous(data.data(), DType::kF32, tokens, 4, 32);
    };
    ForwardArgs args;
    args.q = view(q), args.k = view(k), args.v = view(v), args.o = view(o);
    args.lse = lse.data();
    attention.forward(args, Stream{});
    attention.finish(Stream{});

    const std::lock_guard lock(printing);
    std::printf("rank %d of %d holds %lld tokens\n", group.rank(), group.size(),
                static_cast<long long>(tokens));
    for (int64_t row = 0; row < tokens; ++row)
      keys += std::exp(static_cast<double>(lse[static_cast<size_t>(row)]));
  });
  std::printf("%.0f of %lld visible pairs attended\n", keys,
              static_cast<long long>(problem.masks->front().area()));
}
