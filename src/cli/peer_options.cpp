// Passes the values on in LONGSPAN_PYTHON and LONGSPAN_PEER_FILES.
#include "cli/peer_options.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "base/error.h"
#include "bench/spec/values.h"

namespace longspan::cli {

void add_peer_options(CLI::App& command, PeerOptions& options) {
  command
      .add_option("--python", options.pythons,
                  "Python interpreter for the peers [python3]; repeat the option if peers need different "
                  "environments")
      ->type_name("PATH")
      ->expected(1)
      ->take_all();
  command
      .add_option("--peer", options.files,
                  "A peer of your own: a Python file, whose name is the kernel's; repeat the option for more")
      ->type_name("FILE")
      ->expected(1)
      ->take_all();
}

void set_peer_options(const PeerOptions& options) {
  for (const std::string& python : options.pythons)
    LONGSPAN_CHECK_INPUT(python.find('/') == std::string::npos || access(python.c_str(), X_OK) == 0,
                         "--python {}: not an executable file", python);
  std::vector<std::string> files;
  for (const std::string& file : options.files) {
    files.push_back(std::filesystem::absolute(file).lexically_normal().string());
    LONGSPAN_CHECK_INPUT(files.back().find(':') == std::string::npos,
                         "--peer {}: the path of a peer must have no colon", files.back());
  }
  if (!options.pythons.empty())
    setenv("LONGSPAN_PYTHON", fmt::format("{}", fmt::join(options.pythons, ":")).c_str(), 1);
  if (!files.empty()) setenv("LONGSPAN_PEER_FILES", fmt::format("{}", fmt::join(files, ":")).c_str(), 1);
}

std::map<std::string, std::string> peer_words(const PeerOptions& options) {
  std::map<std::string, std::string> words;
  for (const std::string& given : options.files) {
    const std::filesystem::path file(given);
    std::string kernel = file.stem().string();
    std::replace(kernel.begin(), kernel.end(), '_', '-');
    words[kernel] = " --peer " + bench::shell_quoted(std::filesystem::proximate(file).string());
  }
  return words;
}

}  // namespace longspan::cli
