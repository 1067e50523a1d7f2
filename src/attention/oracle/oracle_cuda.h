// The fp64 oracle on the GPU that holds the tensors: the sums of attention/oracle.h in another order.
#pragma once

#include "attention/oracle/oracle.h"

namespace longspan {

// The largest supported head_dim; for larger ones copy the tensors to the host and use the CPU oracle.
inline constexpr int64_t kOracleCudaMaxHeadDim = 256;

// Like reference_forward and reference_backward, with inputs in the memory of one CUDA device.
ForwardReference reference_forward_cuda(const Problem& problem, const OracleInputs& inputs,
                                        const Samples& samples);
BackwardReference reference_backward_cuda(const Problem& problem, const OracleInputs& inputs,
                                          const Samples& samples);

}  // namespace longspan
