// How a tensor in this process's device memory is told to another process.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

#include "base/tensor.h"

namespace longspan::peers {

// {shape, dtype, ipc, offset}: the CUDA IPC handle, in hexadecimal digits, of the allocation that the tensor
// lies in, and where in it, in bytes. The tensor is dense.
nlohmann::json shared_tensor(const TensorView& tensor);

}  // namespace longspan::peers
