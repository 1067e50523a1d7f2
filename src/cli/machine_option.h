// The machine of the commands that predict: `simulate` and `advise`.
#pragma once

#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

#include "bench/simulate/machine_file.h"

namespace longspan::cli {

struct MachineArguments {
  std::string machine, kernel;  // as given
  const std::string& kernel_of(const bench::Machine& described) const;
};

// `kernel_preset` says which kernel stands for none, in the help.
void add_machine_options(CLI::App& command, MachineArguments& arguments,
                         std::string_view kernel_preset = "the first in alphabetical order");

// A line of text: the machine's name, and where its figures come from.
std::string machine_line(const bench::Machine& machine);

}  // namespace longspan::cli
