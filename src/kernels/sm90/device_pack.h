// Arrays of plain data brought to a device in one allocation: what a plan holds there.
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

  // Room for an array, whose place is its offset. What is added must live until upload().
  template <class T>
  size_t add(const std::vector<T>& array) {
    static_assert(std::is_trivially_copyable_v<T>);
    return add(array.data(), array.size() * sizeof(T));
  }
  size_t add(const void* data, size_t bytes);
  size_t add_zeros(size_t bytes) { return add(nullptr, bytes); }
  // Memory that the device writes before it reads it. Comes after all else.
  size_t add_room(size_t bytes);

  // Takes the memory of a pack that is gone, where there is some that fits: in training a plan follows the
  // other, and asking the driver for memory takes longer than most planning does. Returns while small packs
  // are still on their way, see wait_in().
  void upload(const Device& device);

  // Before each use: what is queued in `stream` from here on finds the arrays there.
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
  size_t bytes_ = 0, room_ = 0;  // in all; of that nothing is brought to
  int device_ = 0;
  Upload upload_;
  bool arrived_ = false, used_ = false;
  Buffer memory_;
};

}  // namespace longspan::sm90
