// `longspan advise --workload`: which context-parallel degree a workload wants.
#pragma once

#include <string>

#include "bench/simulate/machine_file.h"
#include "cli/schedule_case.h"

namespace longspan::cli {

// Prints the advice as text or JSON. Throws an input error for an option that the workload answers.
void advise_on_workload(const std::string& path, const ScheduleArguments& arguments,
                        const std::string& kernel, const bench::Machine& machine, bool json);

}  // namespace longspan::cli
