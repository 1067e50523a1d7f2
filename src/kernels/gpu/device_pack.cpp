#include "kernels/gpu/device_pack.h"

#include <cstring>
#include <utility>

#include "base/cuda/cuda.h"

namespace longspan::gpu {
namespace {

constexpr size_t kAlignment = 256;

}  // namespace

void DevicePack::add(const void* data, size_t bytes, Place place) {
  arrays_.push_back({data, bytes, bytes_, std::move(place)});
  bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

void DevicePack::upload(const Device& device) {
  const cuda::DeviceGuard guard(device.index);
  const Stream stream = upload_stream(device);
  memory_ = PlanMemory(bytes_, device, cuda::raw(stream));
  arrived_ = false;
  for (const PackedArray& array : arrays_) array.place(memory_.data() + array.offset);
  if (bytes_ <= Upload::kMostBytes) {
    upload_ = Upload::begin(memory_.data(), bytes_, device, [&](char* staged) {
      for (const PackedArray& array : arrays_)
        if (array.bytes > 0) std::memcpy(staged + array.offset, array.data, array.bytes);
    });
  } else {
    for (const PackedArray& array : arrays_)
      if (array.bytes > 0) cuda::copy_async(memory_.data() + array.offset, array.data, array.bytes, stream);
    cuda::synchronize(stream);
  }
  memory_.used_by(cuda::raw(stream));  // by the upload itself
  arrays_.clear();
}

DevicePack::Use::Use(DevicePack& pack, cudaStream_t stream) : pack_(pack), stream_(stream) {
  if (!pack.arrived_) pack.arrived_ = pack.upload_.wait_in(Stream{stream});
}

}  // namespace longspan::gpu
