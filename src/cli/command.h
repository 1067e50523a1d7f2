// The interface of the commands of `longspan`, each of which has its own file.
#pragma once

#include <CLI/CLI.hpp>

namespace longspan::cli {

// Each adds one subcommand with its options and its callback to the program. A callback reports failure by
// throwing longspan::Error, or CLI::RuntimeError with the exit code if the output has already given the
// reason.
using AddCommand = void (*)(CLI::App& program);

}  // namespace longspan::cli
