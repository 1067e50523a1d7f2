// The tensors of a problem in device memory, and host copies of them.
#pragma once

#include <vector>

#include "attention/kernel.h"
#include "base/buffer.h"
#include "base/host_scratch.h"

namespace longspan {

// Non-owning views. The backward tensors may be empty in a forward problem.
struct DeviceTensors {
  DeviceKind kind = DeviceKind::kCpu;
  TensorView q, k, v, o;        // [tokens, heads, head_dim]; v and o: head_dim_v
  float* lse = nullptr;         // [heads_q, tokens_q]
  TensorView dout, dq, dk, dv;  // likewise
  float* dlse = nullptr;        // [heads_q, tokens_q]; only with Problem::lse_gradient
  float* dsinks = nullptr;      // [heads_q]; if somebody computes it
};

// Owns all tensors of a problem and the workspace of a plan.
class ProblemTensors {
 public:
  ProblemTensors(const Problem& problem, Direction direction, const Device& device, const Plan& plan);

  const DeviceTensors& views() const { return views_; }

  // Fills q, k, v, dout and dlse with standard normals of streams 0 to 4 of the seed. Sinks are the
  // problem's.
  void fill_inputs(uint64_t seed);

  // Fills the outputs and workspace of the pass with NaN, so that unwritten elements and reads of
  // uninitialised memory show.
  void poison(Direction direction);

  void forward(Plan& plan);
  void backward(Plan& plan);

 private:
  TensorView allocate(DType dtype, int64_t tokens, int64_t heads, int64_t head_dim);

  Device device_;
  std::vector<Buffer> buffers_;
  Buffer lse_, sinks_, workspace_;
  DeviceTensors views_;
};

// A tensor that the host can read: the tensor itself or a copy.
class HostCopy {
 public:
  HostCopy(const TensorView& tensor, DeviceKind kind);  // device tensors must be dense
  const TensorView& view() const { return view_; }

 private:
  HostScratch memory_;
  TensorView view_;
};

}  // namespace longspan
