// What the file of a peer says of it: the block PEER = {...}, read as JSON, so that no Python has to start.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "base/device.h"

namespace longspan::peers {

struct PeerFile {
  std::string name;         // of the file: fa2_sparse.py is fa2-sparse
  std::string description;  // one line
  std::string framework;    // what the worker opens the device and the tensors with: "torch"
  std::string package;      // that holds the kernel: "flash_attn"; may be empty
  DeviceKind device = DeviceKind::kCuda;
  bool backward = false;  // has it, beside the forward pass
  std::string masks;      // that it takes, in words; may be empty
  std::string colour;     // of its charts: "#0b62a8"; may be empty
};

// Throws an input error that names the file and what is wrong with it.
PeerFile parse_peer_file(std::string_view text, const std::filesystem::path& path);
PeerFile read_peer_file(const std::filesystem::path& path);

}  // namespace longspan::peers
