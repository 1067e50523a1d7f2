#include "api/option_text.h"

#include <vector>

#include <fmt/ranges.h>

#include "base/error.h"

namespace longspan {

void set_from_text(OptionValues& values, std::span<const OptionSpec> declared, std::string_view reader,
                   std::string_view others, const std::string& name, const std::string& text) {
  const OptionSpec* option = find_option(declared, name);
  if (option == nullptr) {
    std::vector<std::string_view> names;
    if (!others.empty()) names.push_back(others);
    for (const OptionSpec& one : declared) names.push_back(one.name);
    LONGSPAN_CHECK_INPUT(false, "{} does not apply to {}, which takes {}", name, reader,
                         names.empty() ? "no options" : fmt::format("{}", fmt::join(names, ", ")));
  }
  try {
    values.set(name, option->parse(text));
  } catch (const Error& error) {
    LONGSPAN_CHECK_INPUT(false, "{} {}", name, error.what());
  }
}

}  // namespace longspan
