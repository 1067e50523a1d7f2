// The case of a command that works on schedules without running them: `plan`, `simulate` and `advise`.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

#include "bench/spec/case.h"

namespace longspan::cli {

struct ScheduleArguments {
  std::string strategy;
  std::vector<std::string_view> unread;     // axes of a run that the command does not have
  std::map<std::string, std::string> axes;  // as given, by name
};

CLI::Option* add_strategy_argument(CLI::App& command, ScheduleArguments& arguments);
void add_schedule_options(CLI::App& command, ScheduleArguments& arguments);  // one for each axis

// Throws an input error for a missing or wrong value, and for options that the mask or the strategy does not
// read. `kernel` is that of the case if --kernel is not among the options, or not given.
bench::Case schedule_case(const ScheduleArguments& arguments, std::string_view kernel);

}  // namespace longspan::cli
