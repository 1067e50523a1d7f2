// Messages for command lines that cannot be parsed: one line that says what is wrong and what is allowed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

namespace longspan::cli {

// "longspan run: unknown option '--kernal' (did you mean --kernel?); the options are ..."
std::string describe_usage_error(const CLI::App& program, const CLI::ParseError& error);

// The candidate nearest to the typed word, or "" if none is near enough.
std::string nearest(std::string_view typed, const std::vector<std::string>& candidates);

// The visible commands and options of `app`, as they are typed.
std::vector<std::string> command_names(const CLI::App& app);
std::vector<std::string> option_names(const CLI::App& app);

}  // namespace longspan::cli
