// The options of the mask patterns on the command lines of `mask` and `verify`.
#pragma once

#include <map>
#include <string>

#include <CLI/CLI.hpp>

#include "base/options.h"

namespace longspan::cli {

// Adds every option that some pattern reads. Values from the command line are stored in `texts` by the
// option's key.
void add_pattern_options(CLI::App& command, std::map<std::string, std::string>& texts);

// The values of the options that were given. Throws an input error that names the option and says what is
// allowed.
OptionValues parse_options(const std::map<std::string, std::string>& texts);

}  // namespace longspan::cli
