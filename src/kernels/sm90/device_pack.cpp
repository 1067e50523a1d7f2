#include "kernels/sm90/device_pack.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>

#include "base/cuda/cuda.h"

namespace longspan::sm90 {
namespace {

constexpr size_t kAlignment = 256;

// Keeps some small allocations of destroyed packs.
class Spares {
 public:
  static constexpr size_t kMost = 4, kGrain = size_t{64} << 10, kLargest = size_t{16} << 20;

  Buffer take(size_t bytes, const Device& device) {
    if (bytes > kLargest) return Buffer(bytes, device);
    const size_t room = (bytes + kGrain - 1) / kGrain * kGrain;
    {
      const std::scoped_lock lock(mutex_);
      const auto fits = [&](const Spare& s) { return s.device == device.index && s.memory.bytes() >= room; };
      const auto better = [&](const Spare& a, const Spare& b) {
        return fits(a) && (!fits(b) || a.memory.bytes() < b.memory.bytes());
      };
      const auto found = std::min_element(spares_.begin(), spares_.end(), better);
      if (found != spares_.end() && fits(*found)) {
        Buffer memory = std::move(found->memory);
        spares_.erase(found);
        return memory;
      }
    }
    return Buffer(room, device);
  }

  // The device must not use `memory` any more.
  void give(Buffer memory, int device) {
    if (memory.bytes() > kLargest) return;
    const std::scoped_lock lock(mutex_);
    if (spares_.size() == kMost) spares_.erase(spares_.begin());
    spares_.push_back({std::move(memory), device});
  }

 private:
  struct Spare {
    Buffer memory;
    int device = 0;
  };
  std::mutex mutex_;
  std::vector<Spare> spares_;
};

Spares& spares() {
  static auto* const all = new Spares;  // never freed: at exit the driver may be gone first
  return *all;
}

}  // namespace

DevicePack::~DevicePack() {
  if (memory_.bytes() == 0) return;
  // A kernel on any stream may still read the memory, or the upload may be in flight. Freeing would wait
  // for that, too.
  if (used_) {
    const cuda::DeviceGuard guard(device_);
    if (cudaDeviceSynchronize() != cudaSuccess) return;
  } else if (!upload_.wait()) {
    return;
  }
  spares().give(std::move(memory_), device_);
}

size_t DevicePack::add_room(size_t bytes) {
  const size_t offset = bytes_, room = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  bytes_ += room, room_ += room;
  return offset;
}

size_t DevicePack::add(const void* data, size_t bytes) {
  const size_t offset = bytes_;
  arrays_.push_back({data, bytes, offset});
  bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return offset;
}

void DevicePack::upload(const Device& device) {
  memory_ = spares().take(bytes_, device);
  device_ = device.index;
  const auto copy = [&](size_t offset, const void* from, size_t bytes) {
    copy_bytes(memory_.as<char>() + offset, memory_.kind(), from, DeviceKind::kCpu, bytes);
  };
  if (const size_t brought = bytes_ - room_; brought <= Upload::kMostBytes) {
    upload_ = Upload::begin(memory_.data(), brought, device, [&](char* staged) {
      for (const PackedArray& array : arrays_) {
        if (array.data == nullptr)
          std::memset(staged + array.offset, 0, array.bytes);
        else if (array.bytes > 0)
          std::memcpy(staged + array.offset, array.data, array.bytes);
      }
    });
  } else {
    for (const PackedArray& array : arrays_) {
      if (array.bytes == 0) continue;
      if (array.data == nullptr)
        copy(array.offset, std::make_unique<char[]>(array.bytes).get(), array.bytes);
      else
        copy(array.offset, array.data, array.bytes);
    }
  }
  arrays_.clear();
  arrived_ = used_ = false;
}

void DevicePack::wait_in(Stream stream) {
  used_ = true;
  if (!arrived_) arrived_ = upload_.wait_in(stream);
}

}  // namespace longspan::sm90
