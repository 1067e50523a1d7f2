// --python and --peer: the interpreters of the peers' workers, and files of peers (docs/guide/peers.md).
#pragma once

#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

namespace longspan::cli {

struct PeerOptions {
  std::vector<std::string> pythons, files;
};

void add_peer_options(CLI::App& command, PeerOptions& options);

// Sets what is given for this process and all that it starts. Call it before workbench(), which reads the
// files. Throws an input error for an interpreter that is not an executable file.
void set_peer_options(const PeerOptions& options);

// " --peer FILE", relative to the working folder, by kernel: what a command that repeats its case needs.
std::map<std::string, std::string> peer_words(const PeerOptions& options);

}  // namespace longspan::cli
