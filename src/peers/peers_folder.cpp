#include "peers/peers_folder.h"

#include <cstdlib>
#include <sstream>

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace longspan::peers {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProgram = "/proc/self/exe";

bool holds_worker(const fs::path& folder) {
  std::error_code none;
  return fs::exists(folder / "worker.py", none);
}

bool is_installer(uid_t owner) {
  struct stat program {};
  return owner == 0 || owner == geteuid() || (stat(kProgram, &program) == 0 && owner == program.st_uid);
}

// Why a file or folder itself may not be trusted, for the end of a sentence.
std::string distrust(const fs::path& path, Owners owners) {
  struct stat found {};
  if (stat(path.c_str(), &found) != 0) return "cannot be read";
  if ((found.st_mode & S_IWOTH) != 0) return "can be written by every user: chmod o-w";
  if (owners == Owners::kInstallers && !is_installer(found.st_uid))
    return fmt::format(
        "belongs to user {}, who neither runs nor installed this program; to trust it all the "
        "same, set LONGSPAN_PEERS to its folder",
        found.st_uid);
  return "";
}

// Whoever may write a folder above can put another in its place; where it is sticky, as /tmp, only the owner.
bool can_be_replaced_in(const fs::path& parent) {
  struct stat found {};
  return stat(parent.c_str(), &found) == 0 && (found.st_mode & S_IWOTH) != 0 &&
         (found.st_mode & S_ISVTX) == 0;
}

}  // namespace

std::string refusal_of(const fs::path& path, Owners owners) {
  const auto refuse = [](const fs::path& at, const std::string& why) {
    return fmt::format("{} {}", at.string(), why);
  };
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (error) return refuse(path, "cannot be read");
  for (fs::path parent = real.parent_path();; parent = parent.parent_path()) {
    if (can_be_replaced_in(parent)) return refuse(parent, "can be written by every user: chmod o-w");
    if (parent == parent.root_path()) break;
  }
  if (const std::string why = distrust(real, owners); !why.empty()) return refuse(real, why);
  if (fs::is_regular_file(real, error)) return "";
  for (fs::recursive_directory_iterator entry(real, error), end; !error && entry != end;
       entry.increment(error)) {
    if (const std::string why = distrust(entry->path(), owners); !why.empty())
      return refuse(entry->path(), why);
  }
  return error ? refuse(real, "cannot be read") : "";
}

PeersFolder peers_folder() {
  const std::string not_found =
      "the folder of the peers' adapters was not found; set LONGSPAN_PEERS to its path";
  if (const char* given = std::getenv("LONGSPAN_PEERS")) {
    if (!holds_worker(given)) return {"", not_found};
    return {fs::absolute(given).lexically_normal().string(), refusal_of(given, Owners::kAnyone)};
  }
  std::error_code none;
  const fs::path here = fs::read_symlink(kProgram, none).parent_path();
  for (const char* candidate : {"../share/longspan/peers", "../peers", "../../peers"}) {
    if (!holds_worker(here / candidate)) continue;
    const fs::path folder = (here / candidate).lexically_normal();
    return {folder.string(), refusal_of(folder, Owners::kInstallers)};
  }
  return {"", not_found};
}

std::vector<fs::path> peer_files() {
  const char* given = std::getenv("LONGSPAN_PEER_FILES");
  std::vector<fs::path> files;
  std::stringstream list(given == nullptr ? "" : given);
  for (std::string file; std::getline(list, file, ':');) {
    if (!file.empty()) files.push_back(fs::absolute(file).lexically_normal());
  }
  return files;
}

}  // namespace longspan::peers
