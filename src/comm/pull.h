// A kernel that copies rows from the memory of this or other GPUs.
#pragma once

#include <span>

#include "comm/device_copies.h"

namespace longspan {

// Queues the copies in the stream, on the current device of the calling thread.
void pull_rows(std::span<const RowCopy> copies, Stream stream);

}  // namespace longspan
