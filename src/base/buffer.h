// Owned memory of a device.
#pragma once

#include <cstddef>
#include <utility>

#include "base/device.h"

namespace longspan {

// Uninitialised memory of one device, aligned to 256 bytes. Move only. Throws an out-of-memory Error that
// says how much was asked for and how much is free.
class Buffer {
 public:
  Buffer() = default;
  Buffer(size_t bytes, const Device& device);
  ~Buffer() { reset(); }
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }

  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }
  DeviceKind kind() const { return kind_; }
  void reset();

 private:
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(kind_, other.kind_);
    std::swap(index_, other.index_);
  }

  void* data_ = nullptr;
  size_t bytes_ = 0;
  DeviceKind kind_ = DeviceKind::kCpu;
  int index_ = 0;
};

// Between the memories of any two devices; finished when it returns.
void copy_bytes(void* to, DeviceKind to_kind, const void* from, DeviceKind from_kind, size_t bytes);

// Rows of `row_bytes`, their beginnings so many bytes apart.
void copy_rows(void* to, DeviceKind to_kind, size_t to_stride, const void* from, DeviceKind from_kind,
               size_t from_stride, size_t row_bytes, size_t rows);

// Sets each byte to `value`; finished when it returns. 0xff makes NaN of every dtype.
void fill_bytes(void* to, DeviceKind kind, unsigned char value, size_t bytes);

}  // namespace longspan
