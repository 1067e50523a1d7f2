// Runs a problem on one device and on the ranks of a group, and compares the results; for threads and MPI.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/kernel.h"
#include "base/buffer.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/rng.h"
#include "comm/communicator.h"
#include "cp/execute/executor.h"
#include "problems.h"

namespace longspan {

// A test tensor with its memory.
struct Tensor {
  Tensor(int64_t tokens, int64_t heads, int64_t head_dim, DType dtype)
      : memory(static_cast<size_t>(tokens * heads * head_dim) * size_of(dtype)),
        view(TensorView::contiguous(memory.data(), dtype, tokens, heads, head_dim)) {}
  Tensor(Tensor&&) = default;

  float at(int64_t token, int64_t head, int64_t d) const {
    return view.dtype == DType::kF32 ? view.row<float>(token, head)[d]
                                     : to_float(view.row<bf16>(token, head)[d]);
  }

  std::vector<char> memory;
  TensorView view;
};

struct Tensors {
  Tensors(const Problem& p, int64_t tokens)
      : q(tokens, p.heads_q, p.head_dim, p.dtype),
        k(tokens, p.heads_kv, p.head_dim, p.dtype),
        v(tokens, p.heads_kv, p.dim_v(), p.dtype),
        o(tokens, p.heads_q, p.dim_v(), p.dtype),
        dout(tokens, p.heads_q, p.dim_v(), p.dtype),
        dq(tokens, p.heads_q, p.head_dim, p.dtype),
        dk(tokens, p.heads_kv, p.head_dim, p.dtype),
        dv(tokens, p.heads_kv, p.dim_v(), p.dtype),
        lse(static_cast<size_t>(tokens * p.heads_q)),
        dlse(p.lse_gradient ? lse.size() : 0) {}

  ForwardArgs forward() { return {q.view, k.view, v.view, o.view, lse.data(), nullptr}; }
  BackwardArgs backward() {
    return {q.view,  k.view,  v.view,  o.view,  dout.view, lse.data(),
            dq.view, dk.view, dv.view, nullptr, 0,         dlse.empty() ? nullptr : dlse.data()};
  }

  Tensor q, k, v, o, dout, dq, dk, dv;
  std::vector<float> lse, dlse;  // [heads_q, tokens]; dlse with Problem::lse_gradient
};

// The rows of `ranges` of a whole tensor, packed.
inline void copy(const TensorView& whole, const Ranges& ranges, const TensorView& part) {
  int64_t row = 0;
  for (Range range : ranges) {
    const size_t stride = static_cast<size_t>(whole.token_stride) * size_of(whole.dtype);
    const char* from = static_cast<const char*>(whole.data) + static_cast<size_t>(range.begin) * stride;
    std::copy_n(from, static_cast<size_t>(range.size()) * stride,
                static_cast<char*>(part.data) + static_cast<size_t>(row) * stride);
    row += range.size();
  }
}

// Like NCCL and MPI, takes no messages made of rows.
class WithoutRows : public Communicator {
 public:
  explicit WithoutRows(Communicator& communicator) : communicator_(communicator) {}
  int rank() const override { return communicator_.rank(); }
  int size() const override { return communicator_.size(); }
  std::string_view name() const override { return communicator_.name(); }
  void fail(const std::string& reason) override { communicator_.fail(reason); }
  std::unique_ptr<Transfer> exchange(std::span<const Message> sends, std::span<const Message> receives,
                                     Stream stream, Meanwhile meanwhile, Channel channel) override {
    for (const auto messages : {sends, receives}) {
      for (const Message& message : messages)
        LONGSPAN_CHECK(message.row_bytes == 0, "a message made of rows");
    }
    return communicator_.exchange(sends, receives, stream, meanwhile, channel);
  }

 private:
  Communicator& communicator_;
};

inline Tensors draw(const Problem& problem, uint64_t seed = 7) {
  Tensors tensors(problem, problem.tokens_q);
  uint64_t stream = 0;
  for (Tensor* tensor : {&tensors.q, &tensors.k, &tensors.v, &tensors.dout})
    fill_normal(tensor->view, seed, stream++);
  const auto rows = static_cast<int64_t>(tensors.dlse.size());
  fill_normal(TensorView::contiguous(tensors.dlse.data(), DType::kF32, rows, 1, 1), seed, stream);
  return tensors;
}

// A rank's part of drawn tensors, with NaN in the results.
inline Tensors part_of(const Problem& problem, const Tensors& whole, const Ranges& owned) {
  Tensors part(problem, count(owned));
  for (auto [from, to] :
       {std::pair{&whole.q, &part.q}, {&whole.k, &part.k}, {&whole.v, &part.v}, {&whole.dout, &part.dout}}) {
    copy(from->view, owned, to->view);
  }
  for (Tensor* result : {&part.o, &part.dq, &part.dk, &part.dv})
    std::fill(result->memory.begin(), result->memory.end(), '\xff');
  auto dlse = part.dlse.begin();
  for (int64_t head = 0; head < problem.heads_q && problem.lse_gradient; ++head) {
    for (Range range : owned)
      dlse = std::copy_n(whole.dlse.begin() + head * problem.tokens_q + range.begin, range.size(), dlse);
  }
  return part;
}

inline void run_single(const Kernel& kernel, const Problem& problem, Tensors& tensors) {
  const Device device = cpu_device();
  auto plan = kernel.plan(problem, device);
  const size_t bytes =
      std::max(plan->workspace_bytes(Direction::kForward), plan->workspace_bytes(Direction::kBackward));
  Buffer workspace(std::max<size_t>(bytes, 256), device);
  ForwardArgs forward = tensors.forward();
  forward.workspace = workspace.data();
  plan->forward(forward, {});
  BackwardArgs backward = tensors.backward();
  backward.workspace = workspace.data();
  plan->backward(backward, {});
}

// Throws unless a rank's rows of a result equal those of a single device, within `tolerance` of their norm.
inline void check_rows(const char* name, const Tensor& local, const Tensor& single, const Ranges& owned,
                       double tolerance) {
  double difference = 0, norm = 0;
  int64_t row = 0;
  for (Range range : owned) {
    for (int64_t token = range.begin; token < range.end; ++token, ++row) {
      for (int64_t head = 0; head < local.view.heads; ++head) {
        for (int64_t d = 0; d < local.view.head_dim; ++d) {
          const double x = local.at(row, head, d), y = single.at(token, head, d);
          difference += (x - y) * (x - y);
          norm += y * y;
        }
      }
    }
  }
  const double error = norm > 0 ? std::sqrt(difference / norm) : std::sqrt(difference);
  LONGSPAN_CHECK(error < tolerance, "{} is off by {} of its norm", name, error);
}

// Throws unless a rank's results of both passes equal those of a single device.
inline void check_results(const Problem& problem, const Tensors& local, const Tensors& single,
                          const Ranges& owned, double tolerance) {
  check_rows("o", local.o, single.o, owned, tolerance);
  check_rows("dq", local.dq, single.dq, owned, tolerance);
  check_rows("dk", local.dk, single.dk, owned, tolerance);
  check_rows("dv", local.dv, single.dv, owned, tolerance);
  for (int64_t head = 0; head < problem.heads_q; ++head) {
    int64_t row = 0;
    for (Range range : owned) {
      for (int64_t token = range.begin; token < range.end; ++token, ++row) {
        const float got = local.lse[static_cast<size_t>(head * count(owned) + row)];
        const float wanted = single.lse[static_cast<size_t>(head * problem.tokens_q + token)];
        const bool same = std::isinf(wanted) ? got == wanted : std::abs(got - wanted) < 1e-4F;
        LONGSPAN_CHECK(same, "lse of head {} row {} is {}, not {}", head, token, got, wanted);
      }
    }
  }
}

// One rank's part: forward and backward, repeated `passes` times on one executor.
inline void check_rank(const Kernel& kernel, const Problem& problem, const Schedule& schedule,
                       const Tensors& single, Communicator& communicator, double tolerance, int passes = 2) {
  const Ranges& owned = schedule.owned[static_cast<size_t>(communicator.rank())];
  Tensors local = part_of(problem, single, owned);
  Executor executor(schedule, problem, kernel, cpu_device(), communicator);
  const Buffer kept(executor.kept_bytes(), cpu_device());
  for (int pass = 0; pass < passes; ++pass) {
    executor.forward(local.forward(), kept.data(), {});
    executor.backward(local.backward(), kept.data(), {});
  }
  check_results(problem, local, single, owned, tolerance);
}

}  // namespace longspan
