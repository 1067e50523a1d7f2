// Messages for command lines that cannot be parsed: one line that says what is wrong and what is allowed.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>

namespace longspan::cli {

// "longspan run: unknown option '--kernal' (did you mean --kernel?); the options are ..."
std::string describe_usage_error(const CLI::App& program, const CLI::ParseError& error);

// What is wrong with the form of an option's value of this type (of CLI11), or "". CLI11 alone would take an
// empty value for none, 010 and 0x10 for other numbers than 10, and nan for a number.
std::string wrong_form(const std::string& type, std::string_view value);

// The visible commands and options of `app`, as they are typed.
std::vector<std::string> command_names(const CLI::App& app);
std::vector<std::string> option_names(const CLI::App& app);

}  // namespace longspan::cli
