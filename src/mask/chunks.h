// A list that grows without copying: when a list becomes hundreds of megabytes, the doubling of a vector
// would hold its elements twice.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "mask/pages.h"

namespace longspan {

// Elements appended together stay contiguous if their number divides `per_chunk`.
template <class T>
class Chunks {
  static_assert(std::is_trivially_copyable_v<T>, "elements begin as zero bytes and are copied as bytes");

 public:
  explicit Chunks(size_t per_chunk) : per_chunk_(per_chunk) {}

  size_t size() const { return size_; }
  T& operator[](size_t i) { return chunks_[i / per_chunk_].template as<T>()[i % per_chunk_]; }
  T& back() { return (*this)[size_ - 1]; }

  T* append(size_t count) {  // of zero bytes
    if (size_ % per_chunk_ == 0) chunks_.emplace_back(per_chunk_ * sizeof(T));
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
    for (Pages& chunk : chunks_) {
      const T* first = chunk.template as<T>();
      elements.insert(elements.end(), first, first + std::min(per_chunk_, size_ - elements.size()));
      chunk = Pages();
    }
    chunks_.clear();
    size_ = 0;
    return elements;
  }

 private:
  size_t per_chunk_, size_ = 0;
  std::vector<Pages> chunks_;
};

}  // namespace longspan
