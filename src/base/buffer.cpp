#include "base/buffer.h"

#include "base/backend.h"
#include "base/error.h"

namespace longspan {
namespace {

std::string in_units(size_t bytes) {
  if (bytes >= size_t{1} << 30) return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1 << 30));
  if (bytes >= size_t{1} << 20) return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
  return fmt::format("{} bytes", bytes);
}

// The CUDA copy handles both host and device pointers; the CPU copy handles host pointers only.
const Backend& backend_for(DeviceKind a, DeviceKind b) {
  return backend_of(a == DeviceKind::kCpu ? b : a);
}

}  // namespace

Buffer::Buffer(size_t bytes, const Device& device) : kind_(device.kind), index_(device.index) {
  if (bytes == 0) return;
  const Backend& backend = backend_of(kind_);
  data_ = backend.allocate(bytes, index_);
  if (data_ == nullptr) {
    throw Error(ErrorKind::kOutOfMemory,
                fmt::format("out of memory (needs {}, {} free)", in_units(bytes),
                            in_units(backend.free_bytes(index_))),
                __FILE__, __LINE__, "allocate");
  }
  bytes_ = bytes;
}

void Buffer::swap(Buffer& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(kind_, other.kind_);
  std::swap(index_, other.index_);
}

void Buffer::reset() {
  if (data_ != nullptr) backend_of(kind_).release(data_, index_);
  data_ = nullptr;
  bytes_ = 0;
}

void copy_bytes(void* to, DeviceKind to_kind, const void* from, DeviceKind from_kind, size_t bytes) {
  if (bytes != 0) backend_for(to_kind, from_kind).copy(to, from, bytes);
}

void copy_rows(void* to, DeviceKind to_kind, size_t to_stride, const void* from, DeviceKind from_kind,
               size_t from_stride, size_t row_bytes, size_t rows) {
  if (row_bytes * rows == 0) return;
  backend_for(to_kind, from_kind).copy_rows(to, to_stride, from, from_stride, row_bytes, rows);
}

void fill_bytes(void* to, DeviceKind kind, unsigned char value, size_t bytes) {
  if (bytes != 0) backend_of(kind).fill(to, value, bytes);
}

}  // namespace longspan
