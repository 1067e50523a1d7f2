#include "peers/peers.h"

#include <algorithm>
#include <memory>
#include <string>

#include "base/error.h"
#include "peers/peer_file.h"
#include "peers/peer_kernel.h"
#include "peers/peers_folder.h"

namespace longspan {
namespace {

namespace fs = std::filesystem;

// The peer files of the folder: all except the worker and files that begin with an underscore.
std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_regular_file(none) && name.ends_with(".py") && name != "worker.py" && name[0] != '_' &&
        name[0] != '.')
      files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

KernelRow row_of(const peers::PeerFile& file, const std::string& refusal) {
  KernelRow row;
  row.name = file.name;
  row.colour = file.colour;
  row.description = file.description;
  row.package = file.package;
  row.claims = file.backward ? "forward, backward" : "forward";
  if (!file.masks.empty()) row.claims += "; masks " + file.masks;
#ifndef LONGSPAN_WITH_CUDA
  if (file.device == DeviceKind::kCuda) {
    row.reason = "not in this build (no CUDA)";
    row.remedy = "configure with -DLONGSPAN_CUDA=ON";
    return row;
  }
#endif
  if (!refusal.empty()) {
    row.reason = "a peer that may not be executed: " + refusal;
    return row;
  }
  static std::vector<std::unique_ptr<Kernel>> kernels;
  kernels.push_back(make_peer_kernel(file));
  row.kernel = kernels.back().get();
  return row;
}

KernelRow invalid_row(const fs::path& path, const Error& error) {
  KernelRow row;
  row.name = path.stem().string();
  std::replace(row.name.begin(), row.name.end(), '_', '-');
  row.reason = fmt::format("a peer with an invalid file: {}", error.what());
  return row;
}

}  // namespace

std::vector<KernelRow> peers_in(const fs::path& folder, const std::string& refusal) {
  std::vector<KernelRow> rows;
  for (const fs::path& path : files_in(folder)) {
    try {
      rows.push_back(row_of(peers::read_peer_file(path), refusal));
    } catch (const Error& error) {
      rows.push_back(invalid_row(path, error));
    }
  }
  return rows;
}

KernelRow peer_of(const fs::path& file, const std::string& refusal) {
  const peers::PeerFile described = peers::read_peer_file(file);
  const std::string own_refusal = peers::refusal_of(file, peers::Owners::kAnyone);
  LONGSPAN_CHECK_INPUT(own_refusal.empty(), "a peer that may not be executed: {}", own_refusal);
  return row_of(described, refusal);
}

}  // namespace longspan
