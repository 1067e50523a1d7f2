// The command that repeats a case.
#include "bench/run/run_options.h"

#include <algorithm>

#include <fmt/format.h>

#include "bench/spec/values.h"
#include "record/record_json.h"

namespace longspan::bench {

std::string command_of(const Case& c, const TimingRule& rule) {
  std::string command = "longspan";
  for (const std::string& argument : arguments_of(c)) command += " " + shell_quoted(argument);
  const record::Json preset = record::open_object(TimingRule{}).json, set = record::open_object(rule).json;
  for (const RuleKey& key : rule_keys()) {
    const record::Json& value = set.at(std::string(key.name));
    if (value == preset.at(std::string(key.name))) continue;
    std::string option(key.name);
    std::replace(option.begin(), option.end(), '_', '-');
    command += fmt::format(" --{} {}", option, value.dump());
  }
  return command;
}

}  // namespace longspan::bench
