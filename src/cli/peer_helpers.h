// Peers' workers as the runner's helpers. A worker serves the cases of its peer until one fails.
#pragma once

#include <vector>

#include "attention/kernel.h"
#include "bench/case/helper.h"

namespace longspan::cli {

bench::Helpers peer_helpers(std::vector<const Kernel*> peers);

}  // namespace longspan::cli
