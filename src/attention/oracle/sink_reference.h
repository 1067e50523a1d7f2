// What attention sinks do to the true results: the definition of add_sinks() and sink_gradients(), in fp64.
#pragma once

#include "attention/oracle/accuracy.h"
#include "attention/oracle/oracle.h"
#include "attention/tensors.h"

namespace longspan {

// Adds the problem's sinks to a reference without them, and to what errors of the scores do to its rows.
void add_sinks(const Problem& problem, const Samples& samples, ForwardReference& reference);

// Compares dsinks with the gradients that o, lse (both with the sinks), dout and dlse give; all are in host
// memory. The error of a head is relative to the sum of the magnitudes of its rows' terms.
TensorAccuracy compare_dsinks(const Problem& problem, const DeviceTensors& host);

}  // namespace longspan
