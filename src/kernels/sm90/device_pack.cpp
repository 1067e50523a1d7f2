#include "kernels/sm90/device_pack.h"

#include <cstring>
#include <memory>

namespace longspan::sm90 {
namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kSmall = size_t{1} << 20;  // bytes up to which one copy of all is faster than one of each

}  // namespace

size_t DevicePack::add(const void* data, size_t bytes) {
  const size_t offset = bytes_;
  pieces_.push_back({data, bytes, offset});
  bytes_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
  return offset;
}

void DevicePack::upload(const Device& device) {
  memory_ = Buffer(bytes_, device);
  const auto copy = [&](size_t offset, const void* from, size_t bytes) {
    copy_bytes(memory_.as<char>() + offset, memory_.kind(), from, DeviceKind::kCpu, bytes);
  };
  if (bytes_ <= kSmall) {
    const auto staged = std::make_unique<char[]>(bytes_);  // zeros
    for (const Piece& piece : pieces_)
      if (piece.data != nullptr && piece.bytes > 0)
        std::memcpy(staged.get() + piece.offset, piece.data, piece.bytes);
    copy(0, staged.get(), bytes_);
  } else {
    for (const Piece& piece : pieces_) {
      if (piece.bytes == 0) continue;
      if (piece.data == nullptr)
        copy(piece.offset, std::make_unique<char[]>(piece.bytes).get(), piece.bytes);
      else
        copy(piece.offset, piece.data, piece.bytes);
    }
  }
  pieces_.clear();
}

}  // namespace longspan::sm90
