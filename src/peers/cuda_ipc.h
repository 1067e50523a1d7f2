// Describes a tensor in this process's device memory to another process.
#pragma once

#include <nlohmann/json.hpp>

#include "longspan/base.h"

namespace longspan::peers {

// {ipc, offset}: the CUDA IPC handle, in hexadecimal digits, of the allocation that contains the tensor, and
// the tensor's offset in it in bytes. Null if the system has no CUDA IPC.
nlohmann::json ipc_handle(const TensorView& tensor);

}  // namespace longspan::peers
