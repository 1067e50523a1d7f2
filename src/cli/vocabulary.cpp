// Looks up the values of an option by its name.
#include "cli/vocabulary.h"

#include <algorithm>

#include "attention/problem.h"
#include "base/dtype.h"
#include "bench/spec/suite.h"
#include "cli/list_command.h"
#include "cli/wiring.h"
#include "cp/strategies/strategy.h"
#include "mask/patterns/patterns.h"

namespace longspan::cli {

std::vector<std::string> words_of(const CLI::Option& option) {
  const std::string& name = option.get_single_name();
  std::vector<std::string> words;
  if (name == "kernel") {
    for (const Kernel* kernel : workbench().kernels) words.emplace_back(kernel->name());
  } else if (name == "mask" || name == "pattern") {
    for (const Pattern& pattern : patterns()) words.emplace_back(pattern.name);
  } else if (name == "suite") {
    for (const bench::BuiltinSuite& suite : bench::builtin_suites()) words.emplace_back(suite.name);
  } else if (name == "direction") {
    for (Direction direction : {Direction::kForward, Direction::kBackward})
      words.emplace_back(name_of(direction));
  } else if (name == "dtype") {
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) words.emplace_back(name_of(dtype));
  } else if (name == "lengths") {
    words = {"auto", "pile", "prolong64k", "prolong512k", "long-mix", "uniform:", "list:"};
  } else if (name == "strategy") {
    for (const Strategy& strategy : strategies()) words.emplace_back(strategy.name);
  } else if (name == "transport") {
    words = {"threads", "nccl", "mpi"};
  } else if (name == "what") {
    words = listable();
  } else if (name == "shell") {
    words = {"bash", "zsh", "fish"};
  } else {
    std::string key = name;
    std::replace(key.begin(), key.end(), '-', '_');
    for (std::span<const TableOption> options : {pattern_options(), strategy_options()}) {
      if (const TableOption* own = find_option(options, key)) words = own->spec.words();
    }
  }
  return words;
}

}  // namespace longspan::cli
