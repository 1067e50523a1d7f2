// What this build was made from and with: what `longspan --version` says and every result records.
#pragma once

#include <span>
#include <string_view>

namespace longspan {

struct LibraryVersion {
  std::string_view name, version;
};

struct BuildInfo {
  std::string_view version;     // of Longspan: "0.1.0"
  std::string_view commit;      // the full hash; empty if the sources were not in a git checkout
  bool dirty = false;           // the sources differed from that commit when the build was made
  std::string_view compiler;    // "GNU 12.2.0"
  std::string_view build_type;  // "Release"
  bool cuda = false;            // the CUDA kernels are in
  std::span<const LibraryVersion> libraries;
};

const BuildInfo& build_info();

}  // namespace longspan
