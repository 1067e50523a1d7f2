// Arrays that a plan keeps on a device, uploaded in one allocation.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/buffer.h"
#include "kernels/sm90/upload.h"

namespace longspan::sm90 {

class DevicePack {
 public:
  DevicePack() = default;
  ~DevicePack();
  DevicePack(DevicePack&&) = delete;

  // Reserves room for an array and returns its offset. The array must live until upload().
  template <class T>
  size_t add(const std::vector<T>& array) {
    static_assert(std::is_trivially_copyable_v<T>);
    return add(array.data(), array.size() * sizeof(T));
  }
  size_t add(const void* data, size_t bytes);
  size_t add_zeros(size_t bytes) { return add(nullptr, bytes); }
  // Reserves memory that the device writes before it reads it. Call it after every add().
  size_t add_room(size_t bytes);

  // Allocates the memory and copies the arrays. Memory of a destroyed pack is reused if it fits: training
  // makes one plan after another, and an allocation takes longer than most planning. Small packs are copied
  // asynchronously, see wait_in().
  void upload(const Device& device);

  // Call before each use: work queued in `stream` from here on finds the arrays on the device.
  void wait_in(Stream stream);

  template <class T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(memory_.as<char>() + offset);
  }
  size_t bytes() const { return bytes_; }

 private:
  struct PackedArray {
    const void* data;
    size_t bytes, offset;
  };
  std::vector<PackedArray> arrays_;
  size_t bytes_ = 0, room_ = 0;  // in all; of that, the part that is not uploaded
  int device_ = 0;
  Upload upload_;
  bool arrived_ = false, used_ = false;
  Buffer memory_;
};

}  // namespace longspan::sm90
