// Shares tensors of this process with a worker: device memory through CUDA IPC, or copies in shared files on
// the CPU and on systems without CUDA IPC.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "longspan/base.h"
#include "peers/shared_file.h"

namespace longspan::peers {

class SharedTensors {
 public:
  struct Named {
    const char* name;
    TensorView tensor;  // dense
    bool result;        // written by the worker; other tensors are read by it
  };

  // Empty tensors are left out.
  SharedTensors(const std::vector<Named>& tensors, DeviceKind kind);
  ~SharedTensors();
  SharedTensors(const SharedTensors&) = delete;
  SharedTensors& operator=(const SharedTensors&) = delete;

  // {name: {shape, dtype, ipc, offset}}, or {shape, dtype, file}: docs/reference/peer-protocol.md.
  const nlohmann::json& json() const { return json_; }

  // Call after the worker has run: copies results from shared files to their tensors.
  void fetch_results() const;

 private:
  DeviceKind kind_;
  nlohmann::json json_ = nlohmann::json::object();
  std::deque<SharedFile> files_;
  std::vector<std::pair<TensorView, const SharedFile*>> results_;
};

}  // namespace longspan::peers
