// Launches the portable kernels.
#pragma once

#include <string>

#include "kernels/portable/params.h"
#include "kernels/portable/shape.h"
#include "longspan/base.h"

namespace longspan::portable {

// Queue the pass on `stream` of the current device. Throw longspan::Error if no instance has this shape.
void launch_forward(DType dtype, const ForwardShape& shape, const ForwardParams& params, Stream stream);
void launch_backward(DType dtype, const BackwardShape& shape, const BackwardParams& params, Stream stream);

// Empty if this build has code for the device; otherwise the reason.
std::string no_code_reason(const Device& device);

}  // namespace longspan::portable
