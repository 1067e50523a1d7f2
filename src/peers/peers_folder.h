// Where peers are: the folder, and files that the user names; and whether they may be executed.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace longspan::peers {

struct PeersFolder {
  std::string path;     // with worker.py; empty if there is none
  std::string refusal;  // why none of its files is executed; empty if they may be
};

// $LONGSPAN_PEERS, or the folder that was built or installed with this program.
PeersFolder peers_folder();

// The absolute paths of $LONGSPAN_PEER_FILES, separated by colons: files outside the folder. A worker finds
// its adapter in them by the same variable.
std::vector<std::filesystem::path> peer_files();

// Whose files may be executed. Files that every user may write may not, whoever owns them.
enum class Owners : bool {
  kInstallers,  // root, this user, and the owner of this program
  kAnyone,      // the user has named the folder
};

// Why this file, or the files of this folder, may not be executed: who could have put them there. Empty if
// they may be.
std::string refusal_of(const std::filesystem::path& path, Owners owners);

}  // namespace longspan::peers
