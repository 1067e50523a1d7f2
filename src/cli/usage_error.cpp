// Turns the errors of CLI11 into messages that list the alternatives.
#include "cli/usage_error.h"

#include <charconv>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/nearest.h"
#include "base/parse.h"

namespace longspan::cli {
namespace {

// The command that was being parsed when the error occurred.
const CLI::App& innermost(const CLI::App& program) {
  const CLI::App* app = &program;
  while (!app->get_subcommands().empty()) app = app->get_subcommands().back();
  return *app;
}

std::string path_of(const CLI::App& app) {
  return app.get_parent() == nullptr ? app.get_name() : path_of(*app.get_parent()) + " " + app.get_name();
}

std::string suggestion(std::string_view typed, const std::vector<std::string>& candidates) {
  const std::string name = nearest(typed, candidates);
  return name.empty() ? "" : fmt::format(" (did you mean {}?)", name);
}

std::vector<const CLI::Option*> positionals(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) { return option->get_positional(); });
}

std::string unknown_command(const CLI::App& app, std::string_view word) {
  const auto names = command_names(app);
  return fmt::format("unknown command '{}'{}; the commands are {}", word, suggestion(word, names),
                     fmt::join(names, ", "));
}

std::string unknown_option(const CLI::App& app, std::string_view word) {
  const auto names = option_names(app);
  const std::string_view name = word.substr(0, word.find('='));
  return fmt::format("unknown option '{}'{}; the options are {}", name, suggestion(name, names),
                     fmt::join(names, ", "));
}

std::string unexpected_word(const CLI::App& app, std::string_view word) {
  std::vector<std::string> names;
  for (const CLI::Option* option : positionals(app)) names.push_back(option->get_name(true));
  const std::string taken = names.empty() ? "options only" : fmt::format("{}", fmt::join(names, " "));
  return fmt::format("unexpected '{}'; besides options, {} takes {}", word, app.get_name(),
                     names.empty() ? "nothing" : taken);
}

bool looks_like_option(std::string_view word) {
  return word.size() > 1 && word[0] == '-' &&
         (word[1] == '-' || std::isalpha(static_cast<unsigned char>(word[1])));
}

// The option that a message of CLI11 is about. Messages begin with its name or contain it after a colon.
const CLI::Option* option_in(const CLI::App& app, std::string_view message) {
  const CLI::Option* found = nullptr;
  size_t length = 0;
  for (const CLI::Option* option : app.get_options()) {
    const std::string name = option->get_name(option->get_positional());
    if (name.size() > length && message.find(name) != std::string_view::npos) {
      found = option;
      length = name.size();
    }
  }
  return found;
}

std::string what_it_takes(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  if (type == "INT") return "a whole number";
  if (type == "UINT") return "a whole number of at least 0";
  if (type == "FLOAT") return "a number";
  return option.get_description().empty() ? type : fmt::format("{} ({})", type, option.get_description());
}

std::string missing(const CLI::App& app, std::string_view message) {
  if (message.starts_with("A subcommand"))
    return fmt::format("a command is missing; the commands are {}", fmt::join(command_names(app), ", "));
  const CLI::Option* option = option_in(app, message);
  if (option == nullptr) return std::string(message);
  return fmt::format("{} is missing: {}", option->get_name(option->get_positional()),
                     option->get_description());
}

std::string wrong_value(const CLI::App& app, std::string_view message) {
  const CLI::Option* option = option_in(app, message);
  if (option == nullptr) return std::string(message);
  const std::string name = option->get_name(option->get_positional());
  return fmt::format("{} '{}': must be {}", name, fmt::join(option->results(), " "), what_it_takes(*option));
}

std::string wrong_count(const CLI::App& app, std::string_view message) {
  if (message.ends_with(" was given a disallowed flag override"))
    return fmt::format("--{} is a switch and takes no value", message.substr(0, message.find(' ')));
  const CLI::Option* option = option_in(app, message);
  if (option == nullptr) return std::string(message);
  const std::string name = option->get_name(option->get_positional());
  if (option->results().size() > 1) return fmt::format("{} is given more than once", name);
  return fmt::format("{} needs a value: {}", name, what_it_takes(*option));
}

// What is wrong, without the command's name.
std::string describe(const CLI::App& app, const CLI::ParseError& error) {
  // An unknown word is the cause of other errors that CLI11 reports first, such as a missing value.
  const std::vector<std::string> words = app.remaining();
  const bool offers_commands = !command_names(app).empty();
  if (offers_commands && !words.empty() && !looks_like_option(words[0]))
    return unknown_command(app, words[0]);
  for (const std::string& word : words) {
    if (looks_like_option(word)) return unknown_option(app, word);
  }
  if (!words.empty()) return unexpected_word(app, words[0]);

  std::string message = error.what();
  const std::string kind = error.get_name();
  if (kind == "RequiredError") return missing(app, message);
  if (kind == "ConversionError") return wrong_value(app, message);
  if (kind == "ArgumentMismatch") return wrong_count(app, message);
  if (kind == "ValidationError" && message.find(": '") != std::string::npos)
    message.erase(message.find(": '"),
                  1);  // "--seed: '0x1': must be" as other messages: "--seed '0x1': must be"
  return message;      // from validators, and from options that need or exclude each other
}

}  // namespace

std::string wrong_form(const std::string& type, std::string_view value) {
  if (trimmed(value).empty())
    return fmt::format("'{}': the value is empty; give one, or leave out the option", value);
  if (type == "INT" || type == "UINT") {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    // The same text again: neither 010 nor -0 nor a number that was cut to the largest.
    if (error != std::errc() || end != value.data() + value.size() || fmt::format("{}", number) != value)
      return fmt::format("'{}': must be a whole number in decimal digits, at most {}", value, INT64_MAX);
  }
  if (type == "FLOAT") {
    double number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error != std::errc() || end != value.data() + value.size() || !std::isfinite(number))
      return fmt::format("'{}': must be a number, such as 0.05", value);
  }
  return "";
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    if (!command->get_group().empty()) names.push_back(command->get_name());
  }
  return names;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional() && !option->get_group().empty()) names.push_back(option->get_name());
  }
  return names;
}

std::string describe_usage_error(const CLI::App& program, const CLI::ParseError& error) {
  const CLI::App& app = innermost(program);
  return fmt::format("{}: {}", path_of(app), describe(app, error));
}

}  // namespace longspan::cli
