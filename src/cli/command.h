// The interface of the commands of `longspan`, each of which has its own file.
#pragma once

#include <CLI/CLI.hpp>

namespace longspan::cli {

// Each adds one subcommand with its options and its callback to the program. A callback reports failure by
// throwing longspan::Error, or CLI::RuntimeError with the exit code if the output has already given the
// reason.
using AddCommand = void (*)(CLI::App& program);

void add_run_command(CLI::App& program);
void add_mask_command(CLI::App& program);
void add_plan_command(CLI::App& program);
void add_simulate_command(CLI::App& program);
void add_advise_command(CLI::App& program);
void add_workload_command(CLI::App& program);
void add_calibrate_command(CLI::App& program);
void add_verify_command(CLI::App& program);
void add_list_command(CLI::App& program);
void add_report_command(CLI::App& program);
void add_compare_command(CLI::App& program);
void add_completion_command(CLI::App& program);
void add_run_case_command(CLI::App& program);
void add_manual_command(CLI::App& program);
void add_results_page_command(CLI::App& program);

}  // namespace longspan::cli
