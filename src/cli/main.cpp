// The program `longspan`: its commands, its help, and its exit codes.
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/printable.h"
#include "cli/command.h"
#include "cli/start.h"
#include "cli/usage_error.h"
#include "record/build_info.h"

namespace longspan::cli {

// The commands, in the order of the help. To add one, declare it in command.h and add a row.
// clang-format off
constexpr AddCommand kCommands[] = {
    add_run_command,
    add_mask_command,
    add_plan_command,
    add_simulate_command,
    add_advise_command,
    add_workload_command,
    add_calibrate_command,
    add_verify_command,
    add_list_command,
    add_report_command,
    add_compare_command,
    add_completion_command,
    // Hidden: for the program itself, the build and developers.
    add_run_case_command,
    add_manual_command,
    add_results_page_command,
};
// clang-format on

namespace {

std::string version_text() {
  const BuildInfo& info = build_info();
  std::string text = fmt::format("longspan {}", info.version);
  if (!info.commit.empty())
    text += fmt::format(" ({}{})", info.commit.substr(0, 12), info.dirty ? ", changed" : "");
  text += fmt::format("\nbuilt by {}, {}, {} CUDA; with", info.compiler, info.build_type,
                      info.cuda ? "with" : "without");
  const char* separator = " ";
  for (const LibraryVersion& library : info.libraries) {
    text += fmt::format("{}{} {}", separator, library.name, library.version);
    separator = ", ";
  }
  return text;
}

void add_commands(CLI::App& program) {
  program.name("longspan");
  program.require_subcommand(1);
  program.set_version_flag("--version", version_text, "Print the version and what it was built with");
  program.footer(
      "Examples:\n"
      "  longspan run quick --out out/quick                  measure both CPU kernels on all masks\n"
      "  longspan report out/quick -o report.html            see the result in a browser\n"
      "  longspan mask causal_document --seqlen 8K --text    draw a mask\n"
      "  longspan plan usp --ranks 16 --mask causal --seqlen 1M   plan what a strategy sends and computes\n"
      "  longspan advise --machine data/machines/h200.json --ranks 4 --mask causal --seqlen 1M   choose a "
      "strategy\n"
      "  longspan verify                                     check every kernel against the oracles\n"
      "  longspan list kernels                               list the kernels, and which can run here\n"
      "\n"
      "longspan COMMAND --help explains a command, with examples.");
  for (AddCommand add : kCommands) add(program);
  for (CLI::App* command : program.get_subcommands([](CLI::App*) { return true; })) {
    for (CLI::Option* option : command->get_options()) {
      // Otherwise `--json=5` would be accepted as `--json`.
      if (option->get_expected_max() == 0) {
        option->disable_flag_override();
        continue;
      }
      const std::string type = option->get_type_name();
      option->check([type](const std::string& value) { return wrong_form(type, value); });
    }
  }
}

// Prints one line on stderr. If stderr does not take it, the exit code still says that there was an error.
int fail(int code, std::string_view line) {
  std::fputs((printable(line) + "\n").c_str(), stderr);
  return code;
}

bool output_failed() {
  return std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
}

int run(int argc, char** argv) {
  CLI::App program{"Longspan measures, and supplies, long-context attention."};
  try {
    add_commands(program);
    if (argc < 2) {
      fmt::print("{}", program.help());
      return 0;
    }
    program.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    return program.exit(asked);
  } catch (const CLI::RuntimeError& ended) {  // the command has printed the reason
    return ended.get_exit_code();
  } catch (const CLI::ParseError& error) {
    return fail(2, describe_usage_error(program, error));
  } catch (const Error& error) {
    return fail(error.kind() == ErrorKind::kInput ? 2 : 1, fmt::format("longspan: {}", error.what()));
  } catch (const std::bad_alloc&) {
    return fail(1, "longspan: out of memory; give it more (ulimit -v), or make the problem smaller");
  } catch (const std::system_error& error) {  // of fmt::print if the output cannot be written, and of threads
    return output_failed() ? 1 : fail(1, fmt::format("longspan: {}", error.what()));
  } catch (const std::exception& error) {
    return fail(1, fmt::format("longspan: internal error: {}", error.what()));
  }
  return 0;
}

}  // namespace
}  // namespace longspan::cli

int main(int argc, char** argv) {
  longspan::cli::prepare_process();
  const int code = longspan::cli::run(argc, argv);
  // Output that could not be written, such as to a full disk or a closed pipe, is a failure as well.
  if (longspan::cli::output_failed()) {
    longspan::cli::fail(1, "longspan: standard output could not be written");
    return code == 0 ? 1 : code;
  }
  return code;
}
