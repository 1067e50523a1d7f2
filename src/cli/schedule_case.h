// The case of a command that works on a strategy's schedule without running it: `plan` and `simulate`.
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

// Adds the strategy and an option for each axis. The strategy may be left out if it is not `required`.
void add_schedule_options(CLI::App& command, ScheduleArguments& arguments, bool required);

// Throws an input error for a missing or wrong value, and for options that the mask or the strategy does not
// read. `kernel` is that of the case if --kernel is not among the options, or not given.
bench::Case schedule_case(const ScheduleArguments& arguments, std::string_view kernel);

}  // namespace longspan::cli
