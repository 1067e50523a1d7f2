// A list that grows without copying: when a list becomes hundreds of megabytes, the doubling of a vector
// would hold its elements twice.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

namespace longspan {

// For trivially copyable T. Elements appended together stay contiguous if their number divides `per_chunk`.
template <class T>
class Chunks {
 public:
  explicit Chunks(size_t per_chunk) : per_chunk_(per_chunk) {}

  size_t size() const { return size_; }
  T& operator[](size_t i) { return chunks_[i / per_chunk_][i % per_chunk_]; }
  T& back() { return (*this)[size_ - 1]; }

  T* append(size_t count) {  // uninitialised
    if (size_ % per_chunk_ == 0) chunks_.push_back(std::make_unique_for_overwrite<T[]>(per_chunk_));
    T* place = &(*this)[size_];
    size_ += count;
    return place;
  }
  void push_back(const T& element) { *append(1) = element; }

  // Moves the elements to a vector of exactly their size. Each chunk is freed as soon as it is copied, so
  // that the two never take much more memory than one.
  std::vector<T> take() {
    std::vector<T> elements;
    elements.reserve(size_);
    for (auto& chunk : chunks_) {
      elements.insert(elements.end(), chunk.get(),
                      chunk.get() + std::min(per_chunk_, size_ - elements.size()));
      chunk.reset();
    }
    chunks_.clear();
    size_ = 0;
    return elements;
  }

 private:
  size_t per_chunk_, size_ = 0;
  std::vector<std::unique_ptr<T[]>> chunks_;
};

}  // namespace longspan
