// The kernels, devices and oracles that the commands use. A test program links the same commands with others.
#pragma once

#include "bench/case/workbench.h"

namespace longspan::cli {

const bench::Workbench& workbench();

}  // namespace longspan::cli
