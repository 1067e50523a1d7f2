// Adds the options of patterns to a command and parses their values.
#include "cli/pattern_options.h"

#include "base/error.h"
#include "mask/patterns/patterns.h"

namespace longspan::cli {

void add_pattern_options(CLI::App& command, std::map<std::string, std::string>& texts) {
  for (const TableOption& option : pattern_options()) {
    const std::string key(option.spec.name);
    CLI::Option* added = command.add_option(option_name(key), texts[key], option.help());
    if (option.spec.kind == OptionKind::kTokenPair) added->type_name("L,R");
  }
}

OptionValues parse_options(const std::map<std::string, std::string>& texts) {
  OptionValues values;
  for (const TableOption& option : pattern_options()) {
    const std::string& text = texts.at(std::string(option.spec.name));
    if (text.empty()) continue;
    try {
      values.set(option.spec.name, option.spec.parse(text));
    } catch (const Error& error) {
      LONGSPAN_CHECK_INPUT(false, "{} {}", option_name(option.spec.name), error.what());
    }
  }
  return values;
}

}  // namespace longspan::cli
