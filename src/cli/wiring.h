// The concrete things that the commands work with. A test program links the same commands with a wiring of
// its own.
#pragma once

#include "bench/run/workbench.h"

namespace longspan::cli {

const bench::Workbench& workbench();

}  // namespace longspan::cli
