// The peers: attention kernels of other frameworks, one for each Python file in the folder peers/.
#pragma once

#include <filesystem>
#include <vector>

#include "attention/kernel_row.h"

namespace longspan {

// One for each file, by name. A file that cannot be understood is a row without a kernel, with what is wrong
// as its reason; so is a peer for GPUs in a build without CUDA. The kernels live as long as the program.
std::vector<KernelRow> peers_in(const std::filesystem::path& folder);

}  // namespace longspan
