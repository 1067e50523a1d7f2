// A run: all cases of a suite, each in a process of its own, into one results file.
#pragma once

#include "bench/run/run_options.h"
#include "bench/run/workbench.h"

namespace longspan::bench {

// Throws an input error if the results file cannot be used. A failure of a case is recorded in its line.
RunSummary run(const RunOptions& options, const Workbench& workbench);

}  // namespace longspan::bench
