// The folder of the peers: which it is, and whether its files may be executed.
#pragma once

#include <filesystem>
#include <string>

namespace longspan::peers {

struct PeersFolder {
  std::string path;     // with worker.py; empty if there is none
  std::string refusal;  // why none of its files is executed; empty if they may be
};

// $LONGSPAN_PEERS, or the folder that was built or installed with this program.
PeersFolder peers_folder();

// Whose files may be executed. Files that every user may write may not, whoever owns them.
enum class Owners : bool {
  kInstallers,  // root, this user, and the owner of this program
  kAnyone,      // the user has named the folder
};

// Why the files of this folder may not be executed: who could have put them there. Empty if they may be.
std::string refusal_of(const std::filesystem::path& folder, Owners owners);

}  // namespace longspan::peers
