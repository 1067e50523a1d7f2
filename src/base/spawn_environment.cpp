#include "base/spawn_environment.h"

#include <string_view>

#include <unistd.h>  // environ

namespace longspan {

SpawnEnvironment::SpawnEnvironment(const Variables& changes) {
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (!changes.contains(std::string(text.substr(0, text.find('='))))) entries_.emplace_back(text);
  }
  for (const auto& [name, value] : changes) entries_.emplace_back(name).append("=").append(value);
  for (std::string& entry : entries_) pointers_.push_back(entry.data());
  pointers_.push_back(nullptr);
}

}  // namespace longspan
