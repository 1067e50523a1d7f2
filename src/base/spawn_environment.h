// The environment of a child process: this process's variables, with some replaced or added.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace longspan {

using Variables = std::map<std::string, std::string>;

class SpawnEnvironment {
 public:
  explicit SpawnEnvironment(const Variables& changes);
  SpawnEnvironment(const SpawnEnvironment&) = delete;
  SpawnEnvironment& operator=(const SpawnEnvironment&) = delete;

  char** data() { return pointers_.data(); }  // in the form that posix_spawn takes

 private:
  std::vector<std::string> entries_;
  std::vector<char*> pointers_;
};

}  // namespace longspan
