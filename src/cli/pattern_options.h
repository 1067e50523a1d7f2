// The options of the mask patterns on the command lines of `mask` and `verify`.
#pragma once

#include <map>
#include <string>

#include <CLI/CLI.hpp>

#include "base/options.h"

namespace longspan::cli {

// Adds an option for each that some pattern reads; what is given lands in `texts`, by the option's key.
void add_pattern_options(CLI::App& command, std::map<std::string, std::string>& texts);

// The values of those that were given. Throws an input error that names the option and says what is allowed.
OptionValues parse_options(const std::map<std::string, std::string>& texts);

}  // namespace longspan::cli
