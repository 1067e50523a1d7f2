// How a tensor in this process's device memory is told to another process.
#pragma once

#include <nlohmann/json.hpp>

#include "base/tensor.h"

namespace longspan::peers {

// {ipc, offset}: the CUDA IPC handle, in hexadecimal digits, of the allocation that the tensor lies in, and
// where in it, in bytes. Null where the system has no CUDA IPC.
nlohmann::json ipc_handle(const TensorView& tensor);

}  // namespace longspan::peers
