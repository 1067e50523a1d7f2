// --python, which names the interpreter of the peers' workers (docs/guide/peers.md).
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace longspan::cli {

void add_python_option(CLI::App& command, std::vector<std::string>& pythons);

// Sets the interpreters for all workers that this process and its children start, if any are given. Throws an
// input error for a path that is not an executable file.
void set_pythons(const std::vector<std::string>& pythons);

}  // namespace longspan::cli
