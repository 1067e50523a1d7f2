// The operations that each kind of device implements: memory, copies, device listing. Buffer and devices()
// call them through this table, so the CPU build needs no CUDA toolkit and other files need no #ifdef.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "longspan/base.h"

namespace longspan {

struct Backend {
  // Returns nullptr if there is not enough memory. Aligned to 256 bytes.
  void* (*allocate)(size_t bytes, int index);
  void (*release)(void* data, int index) noexcept;
  size_t (*free_bytes)(int index);  // memory available for allocation
  // Copies within this device's memory or between it and the host's. Returns when the copy is done.
  void (*copy)(void* to, const void* from, size_t bytes);
  void (*copy_rows)(void* to, size_t to_stride, const void* from, size_t from_stride, size_t row_bytes,
                    size_t rows);
  void (*fill)(void* to, unsigned char value, size_t bytes);  // returns when it is done
  void (*fill_normal)(const TensorView& tensor, uint64_t seed, uint64_t stream, int index);  // base/rng.h
  void (*use)(int index);  // makes it the current device of the calling thread
  // Says why this device cannot use the memory at `data`: "at 0x..., which is ..."; "" if it may.
  std::string (*misplaced)(const void* data, int index);
  std::vector<Device> (*devices)();  // the usable ones
};

const Backend& cpu_backend();
const Backend* cuda_backend();  // nullptr in a build without CUDA

const Backend& backend_of(DeviceKind kind);  // throws an input error if this build lacks it

}  // namespace longspan
