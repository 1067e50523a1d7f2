// Where a computation runs, and the queue it runs in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace longspan {

enum class DeviceKind : uint8_t { kCpu, kCuda };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;            // the CUDA ordinal; 0 for the CPU
  std::string name;         // "Intel(R) Xeon(R) ...", "NVIDIA H200"
  int units = 0;            // hardware threads this process may use, or multiprocessors
  int capability = 0;       // CUDA: 10 * major + minor, e.g. 90; 0 for the CPU
  size_t memory_bytes = 0;  // in all
  size_t cache_bytes = 0;   // last-level cache (L3, or the GPU's L2)
  std::string uuid;         // CUDA: "GPU-..." as nvidia-smi shows it; empty for the CPU
};

// A CUDA stream as the runtime's own handle, or nothing on the CPU, where every call is finished when it
// returns.
struct Stream {
  void* handle = nullptr;
};

Device cpu_device();
std::vector<Device> devices();  // the CPU first, then each CUDA device that can be used

// Why devices() has no CUDA device, in words for the user: how it was built, no driver, no GPU. Empty where
// it has.
std::string no_cuda_reason();

}  // namespace longspan
