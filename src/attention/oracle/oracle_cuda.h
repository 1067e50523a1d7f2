// The fp64 oracle on the GPU that holds the tensors: the same sums as attention/oracle.h on the CPU, in
// another order.
#pragma once

#include "attention/oracle/oracle.h"

namespace longspan {

// head_dim up to this; beyond it the tensors are to be copied to the host and given to the CPU's oracle.
inline constexpr int64_t kOracleCudaMaxHeadDim = 256;

// As reference_forward and reference_backward, with inputs in the memory of one CUDA device.
ForwardReference reference_forward_cuda(const Problem& problem, const OracleInputs& inputs,
                                        const Samples& samples);
BackwardReference reference_backward_cuda(const Problem& problem, const OracleInputs& inputs,
                                          const Samples& samples);

}  // namespace longspan
