// `longspan completion`: prints scripts that complete commands, options and values in a shell. They are made
// from the same definitions that parse the command line and print --help.
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "cli/command.h"
#include "cli/usage_error.h"
#include "cli/vocabulary.h"

namespace longspan::cli {
namespace {

std::vector<const CLI::App*> visible_commands(const CLI::App& program) {
  return program.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
}

std::vector<const CLI::Option*> visible_options(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) { return !option->get_group().empty(); });
}

// All names of an option as typed: "-o", "--output".
std::vector<std::string> spellings(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  return names;
}

std::string shell_quoted(std::string_view text) {  // in single quotes, for bash and fish
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string bash_script(const CLI::App& program) {
  std::string values, words;
  for (const CLI::App* command : visible_commands(program)) {
    std::vector<std::string> positional_words;
    for (const CLI::Option* option : visible_options(*command)) {
      const auto taken = words_of(*option);
      if (option->get_positional()) {
        positional_words.insert(positional_words.end(), taken.begin(), taken.end());
      } else if (option->get_expected_max() > 0) {
        for (const std::string& name : spellings(*option))
          values +=
              fmt::format("    '{} {}') words='{}' ;;\n", command->get_name(), name, fmt::join(taken, " "));
      }
    }
    words += fmt::format("      {}) options='{}' words='{}' ;;\n", command->get_name(),
                         fmt::join(option_names(*command), " "), fmt::join(positional_words, " "));
  }
  return fmt::format(R"(# Completion of longspan for bash, made by `longspan completion bash`.
_longspan() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} command= options= words=none i
  for ((i = 1; i < COMP_CWORD; i++)); do
    [[ ${{COMP_WORDS[i]}} != -* ]] && command=${{COMP_WORDS[i]}} && break
  done
  COMPREPLY=()
  case "$command $previous" in
{values}  esac
  if [[ $words != none ]]; then
    # The value of an option; lists are separated by commas.
    local head=
    [[ $word == *,* ]] && head=${{word%,*}},
    [[ -n $words ]] && COMPREPLY=($(compgen -P "$head" -W "$words" -- "${{word##*,}}"))
    return
  fi
  case $command in
    '') options='{program_options}' words='{commands}' ;;
{words}  esac
  [[ $word == -* ]] && words=$options
  [[ $words != none && -n $words ]] && COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _longspan longspan
)",
                     fmt::arg("values", values), fmt::arg("words", words),
                     fmt::arg("program_options", fmt::format("{}", fmt::join(option_names(program), " "))),
                     fmt::arg("commands", fmt::format("{}", fmt::join(command_names(program), " "))));
}

std::string fish_script(const CLI::App& program) {
  std::string script = "# Completion of longspan for fish, made by `longspan completion fish`.\n";
  const auto add_options = [&](const CLI::App& app, const std::string& condition) {
    for (const CLI::Option* option : visible_options(app)) {
      const auto words = words_of(*option);
      std::string line = fmt::format("complete -c longspan -n {}", shell_quoted(condition));
      for (const std::string& name : option->get_snames()) line += " -s " + name;
      for (const std::string& name : option->get_lnames()) line += " -l " + name;
      if (!option->get_positional() && option->get_expected_max() > 0) line += " -r";
      if (!words.empty())
        line += fmt::format(" -a {}", shell_quoted(fmt::format("{}", fmt::join(words, " "))));
      if (option->get_positional() && words.empty()) continue;  // files, which fish completes by itself
      script += fmt::format("{} -d {}\n", line, shell_quoted(option->get_description()));
    }
  };
  add_options(program, "__fish_use_subcommand");
  for (const CLI::App* command : visible_commands(program)) {
    script += fmt::format("complete -c longspan -f -n __fish_use_subcommand -a {} -d {}\n",
                          command->get_name(), shell_quoted(command->get_description()));
    add_options(*command, "__fish_seen_subcommand_from " + command->get_name());
  }
  return script;
}

void print_completion(const CLI::App& program, const std::string& shell) {
  LONGSPAN_CHECK_INPUT(shell == "bash" || shell == "zsh" || shell == "fish",
                       "shell '{}' is unknown; the shells are bash, zsh, fish", shell);
  if (shell == "fish") {
    fmt::print("{}", fish_script(program));
    return;
  }
  // zsh loads bash completions with bashcompinit.
  if (shell == "zsh") fmt::print("#compdef longspan\nautoload -U +X bashcompinit && bashcompinit\n");
  fmt::print("{}", bash_script(program));
}

}  // namespace

void add_completion_command(CLI::App& program) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command =
      program.add_subcommand("completion", "Print a script that completes commands in a shell");
  command->add_option("shell", *shell, "bash, zsh or fish")->required()->type_name("");
  command->footer(
      "Examples:\n"
      "  source <(longspan completion bash)                              in ~/.bashrc\n"
      "  source <(longspan completion zsh)                               in ~/.zshrc, after compinit\n"
      "  longspan completion fish > ~/.config/fish/completions/longspan.fish");
  command->callback([&program, shell] { print_completion(program, *shell); });
}

}  // namespace longspan::cli
