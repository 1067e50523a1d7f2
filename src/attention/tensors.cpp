#include "attention/tensors.h"

#include "base/backend.h"
#include "base/error.h"

namespace longspan {
namespace {

constexpr unsigned char kPoison = 0xff;  // NaN in every dtype

}  // namespace

ProblemTensors::ProblemTensors(const Problem& problem, Direction direction, const Device& device,
                               const Plan& plan)
    : device_(device) {
  const int64_t tokens_q = problem.tokens_q, tokens_kv = problem.tokens_kv;
  const int64_t dim = problem.head_dim, dim_v = problem.dim_v();
  views_.kind = device.kind;
  views_.q = allocate(problem.dtype, tokens_q, problem.heads_q, dim);
  views_.k = allocate(problem.dtype, tokens_kv, problem.heads_kv, dim);
  views_.v = allocate(problem.dtype, tokens_kv, problem.heads_kv, dim_v);
  views_.o = allocate(problem.output_dtype(), tokens_q, problem.heads_q, dim_v);
  lse_ = Buffer(static_cast<size_t>(problem.heads_q * tokens_q) * sizeof(float), device);
  views_.lse = lse_.as<float>();
  if (!problem.sinks.empty()) {
    sinks_ = Buffer(problem.sinks.size() * sizeof(float), device);
    copy_bytes(sinks_.data(), device.kind, problem.sinks.data(), DeviceKind::kCpu, sinks_.bytes());
  }
  size_t workspace = plan.workspace_bytes(Direction::kForward);
  if (direction == Direction::kBackward) {
    views_.dout = allocate(problem.dtype, tokens_q, problem.heads_q, dim_v);
    views_.dq = allocate(problem.output_dtype(), tokens_q, problem.heads_q, dim);
    views_.dk = allocate(problem.output_dtype(), tokens_kv, problem.heads_kv, dim);
    views_.dv = allocate(problem.output_dtype(), tokens_kv, problem.heads_kv, dim_v);
    if (problem.lse_gradient) views_.dlse = buffers_.emplace_back(lse_.bytes(), device).as<float>();
    if (!problem.sinks.empty()) views_.dsinks = buffers_.emplace_back(sinks_.bytes(), device).as<float>();
    workspace = std::max(workspace, plan.workspace_bytes(Direction::kBackward));
  }
  workspace_ = Buffer(workspace, device);
}

TensorView ProblemTensors::allocate(DType dtype, int64_t tokens, int64_t heads, int64_t head_dim) {
  const size_t bytes = static_cast<size_t>(tokens * heads * head_dim) * size_of(dtype);
  const Buffer& buffer = buffers_.emplace_back(bytes, device_);
  return TensorView::contiguous(buffer.data(), dtype, tokens, heads, head_dim);
}

void ProblemTensors::fill_inputs(uint64_t seed) {
  const auto fill = backend_of(device_.kind).fill_normal;
  fill(views_.q, seed, 0, device_.index);
  fill(views_.k, seed, 1, device_.index);
  fill(views_.v, seed, 2, device_.index);
  if (views_.dout.data != nullptr) fill(views_.dout, seed, 3, device_.index);
  if (views_.dlse != nullptr) {
    const auto rows = static_cast<int64_t>(lse_.bytes() / sizeof(float));
    fill(TensorView::contiguous(views_.dlse, DType::kF32, rows, 1, 1), seed, 4, device_.index);
  }
}

void ProblemTensors::poison(Direction direction) {
  const auto fill = [&](const TensorView& tensor) {
    fill_bytes(tensor.data, device_.kind, kPoison, tensor.bytes());
  };
  if (direction == Direction::kForward) {
    fill(views_.o);
    fill_bytes(lse_.data(), device_.kind, kPoison, lse_.bytes());
  } else {
    fill(views_.dq);
    fill(views_.dk);
    fill(views_.dv);
    if (views_.dsinks != nullptr) fill_bytes(views_.dsinks, device_.kind, kPoison, sinks_.bytes());
  }
  fill_bytes(workspace_.data(), device_.kind, kPoison, workspace_.bytes());
}

void ProblemTensors::forward(Plan& plan) {
  plan.forward({.q = views_.q,
                .k = views_.k,
                .v = views_.v,
                .o = views_.o,
                .lse = views_.lse,
                .workspace = workspace_.data(),
                .sinks = sinks_.as<float>()},
               Stream{});
}

void ProblemTensors::backward(Plan& plan) {
  plan.backward({.q = views_.q,
                 .k = views_.k,
                 .v = views_.v,
                 .o = views_.o,
                 .dout = views_.dout,
                 .lse = views_.lse,
                 .dq = views_.dq,
                 .dk = views_.dk,
                 .dv = views_.dv,
                 .workspace = workspace_.data(),
                 .dlse = views_.dlse,
                 .sinks = views_.dsinks == nullptr ? nullptr : sinks_.as<float>(),
                 .dsinks = views_.dsinks},
                Stream{});
}

HostCopy::HostCopy(const TensorView& tensor, DeviceKind kind) : view_(tensor) {
  if (kind == DeviceKind::kCpu) return;
  LONGSPAN_CHECK(
      tensor.head_stride == tensor.head_dim && tensor.token_stride == tensor.heads * tensor.head_dim,
      "only dense tensors are copied to the host; strides are {} and {}", tensor.token_stride,
      tensor.head_stride);
  memory_ = HostScratch(tensor.bytes());
  copy_bytes(memory_.data(), DeviceKind::kCpu, tensor.data, kind, tensor.bytes());
  view_.data = memory_.data();
}

}  // namespace longspan
