// The description in a peer's file: the block PEER = {...}, read as JSON, so that no Python has to start.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "longspan/base.h"

namespace longspan::peers {

struct PeerFile {
  std::string name;            // from the file's name: fa2_sparse.py is fa2-sparse
  std::string description;     // one line
  std::string framework = {};  // opens the device and the tensors in the worker: "torch"
  std::string package = {};    // the package with the kernel: "flash_attn"; may be empty
  DeviceKind device = DeviceKind::kCuda;
  bool backward = false;    // has a backward pass
  std::string masks = {};   // the masks that it supports, in words; may be empty
  std::string colour = {};  // its colour in charts: "#0b62a8"; may be empty
};

// Throws an input error that names the file and the mistake.
PeerFile parse_peer_file(std::string_view text, const std::filesystem::path& path);
PeerFile read_peer_file(const std::filesystem::path& path);

}  // namespace longspan::peers
