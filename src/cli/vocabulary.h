// The words that options and positional arguments take, for completion: read from the tables that define
// them, never listed twice.
#pragma once

#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace longspan::cli {

// Empty where anything goes, such as a number or a file.
std::vector<std::string> words_of(const CLI::Option& option);

}  // namespace longspan::cli
