// Tensors of this process where a worker can reach them: the device memory itself through CUDA IPC, or copies
// in shared files, for the CPU and where there is no IPC.
#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/device.h"
#include "base/tensor.h"
#include "peers/shared_file.h"

namespace longspan::peers {

class SharedTensors {
 public:
  struct Named {
    const char* name;
    TensorView tensor;  // dense
    bool result;        // written by the worker; the others are read by it
  };

  // Empty tensors are left out.
  SharedTensors(const std::vector<Named>& tensors, DeviceKind kind);
  ~SharedTensors();
  SharedTensors(const SharedTensors&) = delete;
  SharedTensors& operator=(const SharedTensors&) = delete;

  // {name: {shape, dtype, ipc, offset}}, or {shape, dtype, file}: docs/reference/peer-protocol.md.
  const nlohmann::json& json() const { return json_; }

  // Once the worker has run: brings results that lie in files where they belong.
  void fetch_results() const;

 private:
  DeviceKind kind_;
  nlohmann::json json_ = nlohmann::json::object();
  std::deque<SharedFile> files_;
  std::vector<std::pair<TensorView, const SharedFile*>> results_;
};

}  // namespace longspan::peers
