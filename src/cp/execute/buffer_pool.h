// Reusable device buffers: a pass reuses the buffers of the pass before.
#pragma once

#include <algorithm>
#include <bit>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/buffer.h"

namespace longspan {

// Buffers of one device, for one thread. A returned buffer may be handed out again at once, so on a GPU all
// uses must be ordered by the stream.
class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  // A buffer that returns to its pool on destruction.
  class Lease {
   public:
    Lease() = default;
    Lease(std::shared_ptr<BufferPool> pool, size_t number) : pool_(std::move(pool)), number_(number) {}
    ~Lease() { reset(); }
    Lease(Lease&& other) noexcept = default;
    Lease& operator=(Lease&& other) noexcept {
      reset();
      pool_ = std::move(other.pool_);
      number_ = other.number_;
      return *this;
    }

    void* data() const { return pool_ ? pool_->buffers_[number_].data() : nullptr; }
    template <class T>
    T* as() const {
      return static_cast<T*>(data());
    }

   private:
    void reset() {
      if (pool_) pool_->free_.insert({pool_->buffers_[number_].bytes(), number_});
      pool_.reset();
    }
    std::shared_ptr<BufferPool> pool_;
    size_t number_ = 0;  // index in BufferPool::buffers_
  };

  // A pool that executors of several schedules share rounds sizes up, so that sizes that differ a little get
  // the same buffers.
  enum class Use : bool { kOwn, kShared };
  explicit BufferPool(const Device& device, Use use = Use::kOwn) : device_(device), use_(use) {}
  const Device& device() const { return device_; }

  // Starts a pass. Calls of take() then repeat those of the previous pass of this kind in the same order, and
  // each gets the buffer it had before. Only the first pass of a kind allocates.
  void begin_pass(size_t kind) {
    if (passes_.size() <= kind) passes_.resize(kind + 1);
    pass_ = kind;
    taken_ = 0;
  }

  // Returns the smallest free buffer of at least `bytes`, unless it is far too large and others need it;
  // otherwise allocates one. `room` is the largest size that the same use will request later; new buffers are
  // made that large.
  Lease take(size_t bytes, size_t room = 0) {
    if (use_ == Use::kShared) return take_fitting(rounded(bytes), rounded(std::max(bytes, room))).second;
    std::vector<size_t>& before = passes_[pass_];
    const size_t turn = taken_++;
    if (turn < before.size()) {
      const size_t number = before[turn];
      const size_t has = buffers_[number].bytes();
      if (has >= bytes && free_.erase({has, number}) == 1) return {shared_from_this(), number};
    }
    auto [number, lease] = take_fitting(bytes, std::max(bytes, room));
    before.resize(std::max(before.size(), turn + 1));
    before[turn] = number;
    return std::move(lease);
  }

  size_t held_bytes() const { return held_bytes_; }  // in use and free

 private:
  // Up to an eighth of the size.
  static size_t rounded(size_t bytes) {
    const size_t step = std::max<size_t>(256, std::bit_floor(bytes) / 8);
    return (bytes + step - 1) / step * step;
  }

  std::pair<size_t, Lease> take_fitting(size_t bytes, size_t most) {
    const auto fit = free_.lower_bound({bytes, 0});
    size_t number = buffers_.size();
    if (fit != free_.end() && fit->first <= most + most / 2) {
      number = fit->second;
      free_.erase(fit);
    } else {
      buffers_.emplace_back(most, device_);
      held_bytes_ += buffers_.back().bytes();
    }
    return {number, Lease(shared_from_this(), number)};
  }

  const Device device_;
  const Use use_;
  std::vector<Buffer> buffers_;
  std::set<std::pair<size_t, size_t>> free_;    // bytes, number
  std::vector<std::vector<size_t>> passes_{1};  // by kind: the buffers taken, in order
  size_t pass_ = 0, taken_ = 0;
  size_t held_bytes_ = 0;
};

using Pool = std::shared_ptr<BufferPool>;

// What the passes of an executor use, and nothing of which outlasts a pass.
struct Scratch {
  Scratch(const Device& device, BufferPool::Use use) : pool(std::make_shared<BufferPool>(device, use)) {}
  Pool pool;
  Buffer workspace;  // of the kernels
};

}  // namespace longspan
