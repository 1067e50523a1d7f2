// Places from which something is brought away, used in turn: each is busy from when it was filled until what
// it held has left. Host code without CUDA, so that a machine with no GPU tests it.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

namespace longspan::sm90 {

// `Slot` has `bool done()`, whether what it held last has left, and `void wait()`, until it has. What is
// taken first leaves first. Not for several threads at once.
template <class Slot>
class StagingRing {
 public:
  StagingRing(size_t most, std::function<std::unique_ptr<Slot>()> make)
      : most_(most), make_(std::move(make)) {}

  // The slot that was taken longest ago if it is done; or a new one, up to `most`; or else waits.
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
  size_t most_, next_ = 0;  // the oldest
  std::function<std::unique_ptr<Slot>()> make_;
  std::vector<std::unique_ptr<Slot>> slots_;
};

}  // namespace longspan::sm90
