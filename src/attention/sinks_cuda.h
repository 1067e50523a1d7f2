// Attention sinks in the memory of a CUDA device; the arguments have been checked.
#pragma once

#include "longspan/attention.h"

namespace longspan::cuda {

void add_sinks(const TensorView& o, float* lse, const float* sinks, const Device& device, Stream stream);
void sink_gradients(const SinkGradientArgs& args, const Device& device, Stream stream);

}  // namespace longspan::cuda
