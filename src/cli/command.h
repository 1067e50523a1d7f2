// The commands of the program `longspan`, each in a file of its own.
#pragma once

#include <CLI/CLI.hpp>

namespace longspan::cli {

// Each adds one subcommand with its options and its callback to the program. A callback reports failure by
// throwing longspan::Error, or by CLI::RuntimeError with the exit code where the output has already said why.
using AddCommand = void (*)(CLI::App& program);

}  // namespace longspan::cli
