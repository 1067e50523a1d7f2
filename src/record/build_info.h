// Version, commit and compiler of this build: printed by `longspan --version` and recorded with every result.
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
  bool dirty = false;           // the sources differed from that commit at build time
  std::string_view compiler;    // "GNU 12.2.0"
  std::string_view build_type;  // "Release"
  bool cuda = false;            // built with the CUDA kernels
  std::span<const LibraryVersion> libraries;
};

const BuildInfo& build_info();

}  // namespace longspan
