// What each kind of device does in its own way: memory, copies, listing. Buffer and devices() go through this
// table, so that the CPU build needs no CUDA toolkit and nobody else asks which build this is.
#pragma once

#include <cstddef>
#include <vector>

#include "base/device.h"
#include "base/tensor.h"

namespace longspan {

struct Backend {
  // nullptr if there is not enough memory. Aligned to 256 bytes.
  void* (*allocate)(size_t bytes, int index);
  void (*release)(void* data, int index) noexcept;
  size_t (*free_bytes)(int index);  // what an allocation may hope for
  // Between this device's memory and this device's or the host's; finished when it returns.
  void (*copy)(void* to, const void* from, size_t bytes);
  void (*copy_rows)(void* to, size_t to_stride, const void* from, size_t from_stride, size_t row_bytes,
                    size_t rows);
  void (*fill)(void* to, unsigned char value, size_t bytes);                                 // likewise
  void (*fill_normal)(const TensorView& tensor, uint64_t seed, uint64_t stream, int index);  // base/rng.h
  void (*use)(int index);            // makes it the calling thread's device
  std::vector<Device> (*devices)();  // those that can be used
};

const Backend& cpu_backend();
const Backend* cuda_backend();  // nullptr in a build without CUDA

const Backend& backend_of(DeviceKind kind);  // throws an input error if this build has none

}  // namespace longspan
