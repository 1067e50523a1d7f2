// Causal attention over two packed documents of 3 and 5 tokens, forward and backward, on the CPU. All queries
// are zero, so all scores are equal and exp(lse) of a row counts the keys it sees.
#include <cmath>
#include <cstdio>
#include <vector>

#include <longspan/attention.h>

using namespace longspan;

int main() {
  const int64_t lengths[] = {3, 5};
  Problem problem;
  problem.tokens_q = problem.tokens_kv = 8;
  problem.heads_q = 2;
  problem.heads_kv = 1;
  problem.head_dim = 16;
  problem.set_mask(Mask::documents(lengths, kUnboundedAbove, 0));  // causal: 0 tokens to the right
  std::printf("%lld visible pairs\n", static_cast<long long>(problem.masks->front().area()));

  // Planned once per mask, and reused for every layer and step.
  const Device device = cpu_device();
  const auto plan = make_plan(problem, device);

  const auto view = [](std::vector<float>& data, int64_t heads) {
    return TensorView::contiguous(data.data(), DType::kF32, 8, heads, 16);
  };
  std::vector<float> q(8 * 2 * 16, 0), k(8 * 16, 1), v(8 * 16, 1), o(q.size()), lse(2 * 8);
  const Buffer forward_workspace(plan->workspace_bytes(Direction::kForward), device);
  ForwardArgs forward;
  forward.q = view(q, 2), forward.k = view(k, 1), forward.v = view(v, 1), forward.o = view(o, 2);
  forward.lse = lse.data();
  forward.workspace = forward_workspace.data();
  plan->forward(forward, Stream{});
  for (size_t row = 0; row < 8; ++row) std::printf("row %zu sees %.0f keys\n", row, std::exp(lse[row]));

  std::vector<float> dout(o.size(), 1), dq(q.size()), dk(k.size()), dv(v.size());
  const Buffer backward_workspace(plan->workspace_bytes(Direction::kBackward), device);
  BackwardArgs backward;
  backward.q = forward.q, backward.k = forward.k, backward.v = forward.v, backward.o = forward.o;
  backward.lse = lse.data();
  backward.dout = view(dout, 2);
  backward.dq = view(dq, 2), backward.dk = view(dk, 1), backward.dv = view(dv, 1);
  backward.workspace = backward_workspace.data();
  plan->backward(backward, Stream{});
  // Each row spreads a gradient of 1 over the keys it sees, so dv of a document sums to its number of rows,
  // once per head.
  float sum = 0;
  for (int64_t token = 0; token < 3; ++token) sum += *backward.dv.row<float>(token, 0);
  std::printf("dv of the first document sums to %.1f\n", static_cast<double>(sum));
}
