// A kernel that copies rows, from other GPUs' memories or its own.
#pragma once

#include <span>

#include "comm/device_copies.h"

namespace longspan {

// In the stream, on the calling thread's device.
void pull_rows(std::span<const RowCopy> copies, Stream stream);

}  // namespace longspan
