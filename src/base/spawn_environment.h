// The environment that a child process gets: this process's, with some variables set.
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

  char** data() { return pointers_.data(); }  // as posix_spawn takes it

 private:
  std::vector<std::string> entries_;
  std::vector<char*> pointers_;
};

}  // namespace longspan
