// `longspan manual`: prints the manual page in roff, made from the same definitions that print --help. The
// build runs it to make longspan.1, so the command is hidden.
#include <string>

#include <fmt/format.h>

#include "cli/command.h"
#include "record/build_info.h"

namespace longspan::cli {
namespace {

std::string roff(std::string_view text) {
  std::string out;
  bool line_start = true;
  for (char c : text) {
    if (line_start && (c == '.' || c == '\'')) out += "\\&";
    out += c == '\\' ? std::string("\\e") : c == '-' ? std::string("\\-") : std::string(1, c);
    line_start = c == '\n';
  }
  return out;
}

std::string options_of(const CLI::App& app) {
  std::string out;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_group().empty()) continue;
    // As in --help: "-o,--output TEXT".
    const std::string name = option->get_name(option->get_positional(), true);
    const std::string value =
        option->get_positional() || option->get_expected_max() == 0 ? "" : option->get_type_name();
    out += fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", roff(name),
                       value.empty() ? "" : " \\fI" + roff(value) + "\\fR", roff(option->get_description()));
  }
  return out;
}

// A block of preformatted lines.
std::string verbatim(std::string_view text) {
  return text.empty() ? "" : fmt::format(".PP\n.nf\n{}\n.fi\n", roff(text));
}

void print_manual(const CLI::App& program) {
  fmt::print(".TH LONGSPAN 1 \"\" \"longspan {}\" \"User Commands\"\n", build_info().version);
  fmt::print(".SH NAME\nlongspan \\- measures, and supplies, long\\-context attention\n");
  fmt::print(".SH SYNOPSIS\n\\fBlongspan\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR...] [\\fIARGUMENT\\fR...]\n");
  fmt::print(".SH OPTIONS\n{}.SH COMMANDS\n", options_of(program));
  for (const CLI::App* command : program.get_subcommands([](const CLI::App*) { return true; })) {
    if (command->get_group().empty()) continue;
    fmt::print(".SS longspan {}\n{}.\n{}{}", roff(command->get_name()), roff(command->get_description()),
               options_of(*command), verbatim(command->get_footer()));
  }
  fmt::print(
      ".SH EXIT STATUS\n.TP\n0\nsuccess\n.TP\n1\na failure: a verification, a comparison or a run that did "
      "not "
      "pass\n.TP\n2\nwrong options, values or files\n");
  fmt::print(".SH EXAMPLES\n{}", verbatim(program.get_footer()));
}

}  // namespace

void add_manual_command(CLI::App& program) {
  CLI::App* command = program.add_subcommand("manual", "Print the manual page, in roff");
  command->group("");
  command->callback([&program] { print_manual(program); });
}

}  // namespace longspan::cli
