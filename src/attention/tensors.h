// The tensors of one problem in one device's memory, and their copies in the host's.
#pragma once

#include <vector>

#include "attention/kernel.h"
#include "base/buffer.h"
#include "base/host_scratch.h"

namespace longspan {

// Views of memory that somebody else owns. Those of the backward pass may be empty in a forward problem.
struct DeviceTensors {
  DeviceKind kind = DeviceKind::kCpu;
  TensorView q, k, v, o;        // [tokens, heads, head_dim]
  float* lse = nullptr;         // [heads_q, tokens_q]
  TensorView dout, dq, dk, dv;  // [tokens, heads, head_dim]
};

// Owns all tensors of a problem and the workspace of a plan.
class ProblemTensors {
 public:
  ProblemTensors(const Problem& problem, Direction direction, const Device& device, const Plan& plan);

  const DeviceTensors& views() const { return views_; }

  // q, k, v and dout: standard normals of streams 0, 1, 2 and 3 of the seed.
  void fill_inputs(uint64_t seed);

  // Outputs and workspace of the pass become NaN, so that what is read or left unwritten shows.
  void poison(Direction direction);

  void forward(Plan& plan);
  void backward(Plan& plan);

 private:
  TensorView allocate(DType dtype, int64_t tokens, int64_t heads);

  Device device_;
  int64_t head_dim_ = 0;
  std::vector<Buffer> buffers_;
  Buffer lse_, workspace_;
  DeviceTensors views_;
};

// A tensor where the host can read it: the tensor itself, or a copy.
class HostCopy {
 public:
  HostCopy(const TensorView& tensor, DeviceKind kind);  // dense unless it is the host's
  const TensorView& view() const { return view_; }

 private:
  HostScratch memory_;
  TensorView view_;
};

}  // namespace longspan
