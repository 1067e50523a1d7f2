// Arrays that a plan keeps on a device, uploaded in one allocation and only read from then on.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <type_traits>
#include <vector>

#include "kernels/gpu/plan_memory.h"
#include "kernels/gpu/upload.h"

namespace longspan::gpu {

class DevicePack {
 public:
  DevicePack() = default;
  DevicePack(DevicePack&&) = delete;

  // Reserves room for an array, whose address on the device upload() writes to `where`; U may be a view of T.
  // Both must live until then.
  template <class T, class U>
  void add(const std::vector<T>& array, const U*& where) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) == sizeof(U));
    add(array.data(), array.size() * sizeof(T),
        [&where](const char* at) { where = reinterpret_cast<const U*>(at); });
  }

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

  const char* data() const { return memory_.data(); }  // on the device, after upload()
  size_t bytes() const { return bytes_; }

 private:
  using Place = std::function<void(const char* at)>;
  struct PackedArray {
    const void* data;
    size_t bytes, offset;
    Place place;
  };
  void add(const void* data, size_t bytes, Place place);

  std::vector<PackedArray> arrays_;
  size_t bytes_ = 0;
  Upload upload_;
  std::atomic<bool> arrived_ = false;
  PlanMemory memory_;
};

}  // namespace longspan::gpu
