// Small problems with their tensors, and the check that a mistake is an Error that names it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "longspan/attention.h"

namespace longspan {

// Runs body, which must throw an Error of this kind whose message holds every one of `parts`.
inline void expect_error(ErrorKind kind, const std::vector<std::string>& parts,
                         const std::function<void()>& body) {
  const auto all = testing::PrintToString(parts);
  try {
    body();
    ADD_FAILURE() << "nothing was thrown; expected an Error with " << all;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    for (const std::string& part : parts) EXPECT_THAT(error.what(), testing::HasSubstr(part));
  } catch (const std::exception& error) {
    ADD_FAILURE() << "not an Error: " << error.what() << "; expected " << all;
  }
}

inline void expect_input_error(const std::vector<std::string>& parts, const std::function<void()>& body) {
  expect_error(ErrorKind::kInput, parts, body);
}

// 48 queries in 4 heads over 40 keys in 2, of one mask.
inline Problem small_problem(DType dtype = DType::kBF16) {
  Problem problem;
  problem.tokens_q = 48;
  problem.tokens_kv = 40;
  problem.heads_q = 4;
  problem.heads_kv = 2;
  problem.head_dim = 16;
  problem.dtype = dtype;
  problem.set_mask(Mask(48, 40, {Band{{0, 48}, {0, 40}, kUnboundedBelow, 0}}));
  return problem;
}

// The arguments of both passes, right until a test changes one.
struct Arguments {
  explicit Arguments(const Problem& problem, const Plan* plan = nullptr) {
    const auto rows = [&](int stream) { return tensor(problem, problem.tokens_q, problem.heads_q, stream); };
    const auto keys = [&](int stream) {
      return tensor(problem, problem.tokens_kv, problem.heads_kv, stream);
    };
    lse = memory(static_cast<size_t>(problem.heads_q * problem.tokens_q) * sizeof(float));
    forward.q = backward.q = rows(0);
    forward.k = backward.k = keys(1);
    forward.v = backward.v = keys(2);
    forward.o = backward.o = rows(3);
    backward.dout = rows(4);
    backward.dq = rows(5);
    backward.dk = keys(6);
    backward.dv = keys(7);
    forward.lse = static_cast<float*>(lse);
    backward.lse = forward.lse;
    if (plan == nullptr) return;
    forward.workspace_size = plan->workspace_bytes(Direction::kForward);
    backward.workspace_size = plan->workspace_bytes(Direction::kBackward);
    forward.workspace = memory(forward.workspace_size);
    backward.workspace = memory(backward.workspace_size);
  }

  ForwardArgs forward;
  BackwardArgs backward;

 private:
  void* memory(size_t bytes) { return buffers.emplace_back(bytes, cpu_device()).data(); }
  TensorView tensor(const Problem& problem, int64_t tokens, int64_t heads, int stream) {
    TensorView view = TensorView::contiguous(nullptr, problem.dtype, tokens, heads, problem.head_dim);
    view.data = memory(view.bytes());
    fill_normal(view, 1, static_cast<uint64_t>(stream));
    return view;
  }

  std::vector<Buffer> buffers;
  void* lse = nullptr;
};

}  // namespace longspan
