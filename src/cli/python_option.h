// --python, which names the interpreter of the peers' workers (docs/guide/peers.md).
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace longspan::cli {

void add_python_option(CLI::App& command, std::vector<std::string>& pythons);

// For all workers that this process and its children start, if any is named. Bad input: a path at which no
// program can be run.
void choose_pythons(const std::vector<std::string>& pythons);

}  // namespace longspan::cli
