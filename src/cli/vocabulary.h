// The words that options and positional arguments accept, for completion. They come from the tables that
// define them.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace longspan::cli {

// Empty if the value is free, such as a number or a file.
std::vector<std::string> words_of(const CLI::Option& option);

}  // namespace longspan::cli
