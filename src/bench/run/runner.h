// A run: measures all cases of a suite in separate processes and writes one results file.
#pragma once

#include "bench/case/workbench.h"
#include "bench/run/run_options.h"

namespace longspan::bench {

// Throws an input error if the results file cannot be used. The failure of a case is recorded in its line.
RunSummary run(const RunOptions& options, const Workbench& workbench);

}  // namespace longspan::bench
