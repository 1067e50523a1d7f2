// A ring of staging buffers that are filled in turn and reused once their copies are done. Host code without
// CUDA.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace longspan::gpu {

// A `Slot` has `bool done()`, whether its last copy is done, and `void wait()`. Copies finish in the order in
// which their slots were taken. Not thread-safe.
template <class Slot>
class StagingRing {
 public:
  StagingRing(size_t most, std::function<std::unique_ptr<Slot>()> make)
      : most_(most), make_(std::move(make)) {}

  // Returns the oldest slot if it is done, else a new slot while there are fewer than `most`, else the
  // oldest after waiting for it.
  Slot& take() {
    if (slots_.empty() || !slots_[next_]->done()) {
      if (slots_.size() < most_)
        slots_.insert(slots_.begin() + static_cast<std::ptrdiff_t>(next_), make_());
      else
        slots_[next_]->wait();
    }
    Slot& slot = *slots_[next_];
    next_ = (next_ + 1) % slots_.size();
    return slot;
  }

  size_t size() const { return slots_.size(); }

 private:
  size_t most_, next_ = 0;  // the oldest slot
  std::function<std::unique_ptr<Slot>()> make_;
  std::vector<std::unique_ptr<Slot>> slots_;
};

}  // namespace longspan::gpu
