// Buffers that are made once and used again: what a rank needs for a pass is there from the pass before.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "base/buffer.h"

namespace longspan {

// Of one device, for one thread. A buffer that is given back is used again at once by the next that asks for
// its size: on a GPU all use of it has to be ordered by the stream.
class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  // A buffer that returns to its pool.
  class Lease {
   public:
    Lease() = default;
    Lease(std::shared_ptr<BufferPool> pool, Buffer buffer)
        : pool_(std::move(pool)), buffer_(std::move(buffer)) {}
    ~Lease() { reset(); }
    Lease(Lease&& other) noexcept = default;
    Lease& operator=(Lease&& other) noexcept {
      reset();
      pool_ = std::move(other.pool_);
      buffer_ = std::move(other.buffer_);
      return *this;
    }

    void* data() const { return buffer_.data(); }
    size_t bytes() const { return buffer_.bytes(); }
    template <class T>
    T* as() const {
      return buffer_.as<T>();
    }

   private:
    void reset() {
      if (pool_ && buffer_.data() != nullptr) pool_->free_[buffer_.bytes()].push_back(std::move(buffer_));
      pool_.reset();
    }
    std::shared_ptr<BufferPool> pool_;
    Buffer buffer_;
  };

  explicit BufferPool(const Device& device) : device_(device) {}
  const Device& device() const { return device_; }

  Lease take(size_t bytes) {
    std::vector<Buffer>& same = free_[bytes];
    if (same.empty()) {
      held_bytes_ += bytes;
      return {shared_from_this(), Buffer(bytes, device_)};
    }
    Buffer buffer = std::move(same.back());
    same.pop_back();
    return {shared_from_this(), std::move(buffer)};
  }

  size_t held_bytes() const { return held_bytes_; }  // in use and free

 private:
  const Device device_;
  std::map<size_t, std::vector<Buffer>> free_;
  size_t held_bytes_ = 0;
};

using Pool = std::shared_ptr<BufferPool>;

}  // namespace longspan
