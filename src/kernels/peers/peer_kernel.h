// Attention kernels of other frameworks, each run by a worker process with that framework's own Python.
#pragma once

#include <span>

#include "attention/kernel.h"

namespace longspan {

// The table of peers: one row an adapter in peers/.
std::span<const Kernel* const> peer_kernels();

}  // namespace longspan
