// Attention sinks in the memory of a CUDA device; the arguments have been checked.
#pragma once

#include <cstdint>

#include "longspan/attention.h"

namespace longspan::cuda {

void add_sinks(const TensorView& o, float* lse, const float* sinks, const Device& device, Stream stream);
void sink_gradients(const SinkGradientArgs& args, const Device& device, Stream stream);

// What a backward pass keeps of its rows: [units, tiles, 2, rows], lse * log2(e) times `sign` and then delta,
// which is o dout - dlse. A unit is 2^log2_pack query heads, whose rows take turns in a tile. Places without
// a row have an infinite lse, which gives them no share.
struct RowStats {
  const float* data = nullptr;
  int64_t tiles = 0;
  int32_t rows = 0, log2_pack = 0;
  float sign = 1;
};

// The gradients of the sinks from them: dsinks of BackwardArgs.
void sink_gradients(const RowStats& stats, int64_t heads_q, const float* sinks, float* dsinks, Stream stream);

}  // namespace longspan::cuda
