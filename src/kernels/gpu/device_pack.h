// Arrays that a plan keeps on a device, uploaded in one allocation and only read from then on.
#pragma once

#include <atomic>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "kernels/gpu/plan_memory.h"
#include "kernels/gpu/upload.h"

namespace longspan::gpu {

class DevicePack {
 public:
  DevicePack() = default;
  DevicePack(DevicePack&&) = delete;

  // Reserves room for an array and returns its offset. The array must live until upload().
  template <class T>
  size_t add(const std::vector<T>& array) {
    static_assert(std::is_trivially_copyable_v<T>);
    return add(array.data(), array.size() * sizeof(T));
  }
  size_t add(const void* data, size_t bytes);

  // Allocates the memory and copies the arrays. Small packs are copied asynchronously.
  void upload(const Device& device);

  // Work queued in `stream` during the life of a Use finds the arrays on the device, and they stay there
  // until it is done, even if the pack is destroyed before.
  class Use {
   public:
    Use(DevicePack& pack, cudaStream_t stream);
    ~Use() { pack_.memory_.used_by(stream_); }
    Use(const Use&) = delete;

   private:
    DevicePack& pack_;
    cudaStream_t stream_;
  };

  template <class T>
  T* at(size_t offset) const {
    return reinterpret_cast<T*>(memory_.data() + offset);
  }
  size_t bytes() const { return bytes_; }

 private:
  struct PackedArray {
    const void* data;
    size_t bytes, offset;
  };
  std::vector<PackedArray> arrays_;
  size_t bytes_ = 0;
  Upload upload_;
  std::atomic<bool> arrived_ = false;
  PlanMemory memory_;
};

}  // namespace longspan::gpu
