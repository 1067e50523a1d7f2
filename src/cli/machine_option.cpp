#include "cli/machine_option.h"

#include <map>

#include <fmt/format.h>

#include "base/printable.h"

namespace longspan::cli {

const std::string& MachineArguments::kernel_of(const bench::Machine& described) const {
  return kernel.empty() ? described.kernels.begin()->first : kernel;
}

void add_machine_options(CLI::App& command, MachineArguments& arguments, std::string_view kernel_preset) {
  command.add_option("--machine", arguments.machine, "a machine file, such as data/machines/h200.json")
      ->type_name("FILE")
      ->required();
  command
      .add_option("--kernel", arguments.kernel,
                  fmt::format("one of the machine's kernels; by default {}", kernel_preset))
      ->type_name("VALUE");
}

std::string machine_line(const bench::Machine& machine) {
  std::map<std::string, int> origins;
  for (const bench::Figure& figure : machine.figures) ++origins[figure.origin];
  std::string text;
  for (const auto& [origin, count] : origins)
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, origin);
  return fmt::format("  {:<12} {}: {} figures{}\n", "machine", printable(machine.name), text,
                     origins.contains("measured") ? "" : "; not measured");
}

}  // namespace longspan::cli
