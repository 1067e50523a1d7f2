// Device memory of a plan, allocated and freed in the order of streams, so that neither waits for the device.
#pragma once

#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include <cuda_runtime_api.h>

#include "longspan/base.h"

namespace longspan::gpu {

// Whether work queued in the stream becomes a part of a graph.
bool is_captured(cudaStream_t stream);

class PlanMemory {
 public:
  PlanMemory() = default;
  // Work queued in `stream` from here on may use the memory. Throws kOutOfMemory.
  PlanMemory(size_t bytes, const Device& device, cudaStream_t stream);
  // The memory is free once all work that used_by() has recorded is done. The host does not wait.
  ~PlanMemory();
  PlanMemory(PlanMemory&& other) noexcept { *this = std::move(other); }
  PlanMemory& operator=(PlanMemory&& other) noexcept;

  char* data() const { return data_; }

  // Call after each use: the memory outlives what is queued in `stream` so far. A graph may run at any later
  // time, so memory that was used in a captured stream is never freed; nor is it if the device has failed.
  // Thread-safe.
  void used_by(cudaStream_t stream) noexcept;

 private:
  bool record(cudaStream_t stream) noexcept;

  char* data_ = nullptr;
  int device_ = 0;
  std::mutex mutex_;
  std::vector<std::pair<unsigned long long, cudaEvent_t>> uses_;  // the last one of each stream
  bool lost_ = false;                                             // never to be freed
};

}  // namespace longspan::gpu
