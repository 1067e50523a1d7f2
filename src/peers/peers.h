// The table of peers: attention kernels of other frameworks, one row an adapter in peers/.
#pragma once

#include <span>

#include "attention/kernel.h"

namespace longspan {

std::span<const Kernel* const> peer_kernels();

}  // namespace longspan
