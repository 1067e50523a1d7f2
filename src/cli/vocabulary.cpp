#include "cli/vocabulary.h"

#include "base/dtype.h"
#include "mask/patterns.h"

namespace longspan::cli {

std::vector<std::string> words_of(const CLI::Option& option) {
  const std::string name = option.get_single_name();
  std::vector<std::string> words;
  if (name == "dtype") {
    for (DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) words.emplace_back(name_of(dtype));
  } else if (name == "shell") {
    words = {"bash", "zsh", "fish"};
  } else if (name == "pattern") {
    for (const Pattern& pattern : patterns()) words.emplace_back(pattern.name);
  } else if (name == "lengths") {
    words = {"auto", "pile", "prolong64k", "prolong512k", "long-mix"};
  }
  return words;
}

}  // namespace longspan::cli
