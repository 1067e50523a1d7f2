// The sinks of a call, for kernels that have no place for them inside.
#pragma once

#include "longspan/attention.h"

namespace longspan {

// Add the call's sinks to its results, or compute their gradients; nothing without sinks.
void finish_sinks(const ForwardArgs& args, const Device& device, Stream stream);
void finish_sinks(const BackwardArgs& args, const Device& device, Stream stream);

}  // namespace longspan
