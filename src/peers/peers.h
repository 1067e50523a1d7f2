// The peers: attention kernels of other frameworks, one per Python file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "attention/kernel_row.h"

namespace longspan {

// One row per file of the folder peers/, sorted by name. An invalid file gives a row without a kernel, with
// the mistake as its reason; so does a GPU peer in a build without CUDA, and each file if there is a reason
// to execute none. The kernels live as long as the program.
std::vector<KernelRow> peers_in(const std::filesystem::path& folder, const std::string& refusal = "");

// The row of a file that the user names; without a kernel if there is a reason to execute none. Throws an
// input error if the file is invalid, or if every user could have written it.
KernelRow peer_of(const std::filesystem::path& file, const std::string& refusal = "");

}  // namespace longspan
