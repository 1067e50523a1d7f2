// One rank's own tensors (its tokens packed, all heads), and copies between them and whole tensors.
#pragma once

#include <vector>

#include "attention/kernel.h"
#include "base/buffer.h"
#include "cp/schedule/ranges.h"

namespace longspan {

struct RankTensors {
  RankTensors(const Problem& problem, const Ranges& owned, const Device& device);
  void add_gradients(const Problem& problem, const Device& device);  // call once, before gradients are needed

  ForwardArgs forward() const { return {q, k, v, o, lse, nullptr}; }
  BackwardArgs backward() const { return {q, k, v, o, dout, lse, dq, dk, dv, nullptr, 0, dlse}; }
  void take_inputs(const TensorView& whole_q, const TensorView& whole_k, const TensorView& whole_v);
  void take_gradients(const TensorView& whole_dout, const float* whole_dlse);  // null: zeros

  Ranges ranges;
  DeviceKind kind;
  std::vector<Buffer> buffers;
  TensorView q, k, v, o, dout, dq, dk, dv;
  float* lse = nullptr;  // [heads, own tokens]
  float* dlse = nullptr;
  Buffer kept;  // by a forward pass for its backward pass
};

// Copies between the rows `ranges` of a whole tensor and the same rows packed.
void rows_to_part(const TensorView& whole, const TensorView& part, const Ranges& ranges, DeviceKind kind);
void rows_to_whole(const TensorView& part, const TensorView& whole, const Ranges& ranges, DeviceKind kind);

// Between packed [heads, tokens of `ranges`] and [heads, tokens].
void lse_to_part(const float* whole, float* part, int64_t tokens, int64_t heads, const Ranges& ranges,
                 DeviceKind kind);
void lse_to_whole(const float* part, float* whole, int64_t tokens, int64_t heads, const Ranges& ranges,
                  DeviceKind kind);

}  // namespace longspan
