// The bytes that a pass writes, for tests that compare runs bit by bit.
#pragma once

#include <vector>

#include "attention/tensors.h"
#include "base/buffer.h"

namespace longspan {

// Runs the forward pass on poisoned outputs. Returns the bytes of lse, then those of o.
inline std::vector<char> forward_bytes(Plan& plan, const Problem& problem, ProblemTensors& tensors) {
  tensors.poison(Direction::kForward);
  tensors.forward(plan);
  const DeviceTensors& views = tensors.views();
  const size_t lse_bytes = static_cast<size_t>(problem.heads_q * problem.tokens_q) * sizeof(float);
  std::vector<char> all(lse_bytes + views.o.bytes());
  copy_bytes(all.data(), DeviceKind::kCpu, views.lse, views.kind, lse_bytes);
  copy_bytes(all.data() + lse_bytes, DeviceKind::kCpu, views.o.data, views.kind, views.o.bytes());
  return all;
}

// Runs the backward pass on poisoned outputs. Returns the bytes of dq, dk and dv.
inline std::vector<char> gradient_bytes(Plan& plan, ProblemTensors& tensors) {
  tensors.poison(Direction::kBackward);
  tensors.backward(plan);
  std::vector<char> all;
  for (const TensorView& t : {tensors.views().dq, tensors.views().dk, tensors.views().dv}) {
    all.resize(all.size() + t.bytes());
    copy_bytes(all.data() + all.size() - t.bytes(), DeviceKind::kCpu, t.data, DeviceKind::kCuda, t.bytes());
  }
  return all;
}

}  // namespace longspan
