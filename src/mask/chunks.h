// A list that grows without copying. A doubling vector would hold its elements twice when the list reaches
// hundreds of megabytes.
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include "mask/pages.h"

namespace longspan {

// Elements appended in one call are contiguous if their number divides `per_chunk`.
template <class T>
class Chunks {
  static_assert(std::is_trivially_copyable_v<T>, "elements begin as zero bytes and are copied as bytes");

 public:
  explicit Chunks(size_t per_chunk) : per_chunk_(per_chunk) {}

  // Removes all elements but keeps a small allocation.
  void begin(size_t per_chunk) {
    per_chunk_ = per_chunk;
    first_.clear();
    chunks_.clear();
  }

  // Reserves room for a short list, which avoids reallocation.
  void reserve(size_t count) { first_.reserve(std::min(count, per_chunk_)); }

  size_t size() const { return chunks_.empty() ? first_.size() : size_; }
  T& operator[](size_t i) {
    return chunks_.empty() ? first_[i] : chunks_[i / per_chunk_].template as<T>()[i % per_chunk_];
  }
  T& back() { return chunks_.empty() ? first_.back() : (*this)[size_ - 1]; }

  T* append(size_t count) {  // zero-initialised
    if (chunks_.empty() && first_.size() + count <= per_chunk_) {
      first_.resize(first_.size() + count);
      return first_.data() + first_.size() - count;
    }
    return append_to_chunks(count);
  }

  void push_back(const T& element) {
    if (chunks_.empty() && first_.size() < per_chunk_) [[likely]]
      first_.push_back(element);
    else
      *append_to_chunks(1) = element;
  }

  // Moves a long list into a vector of exactly its size. Each chunk is freed as soon as it is copied, so peak
  // memory stays near one copy.
  std::vector<T> take() {
    if (chunks_.empty()) return std::exchange(first_, {});
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

  // The same, but a short list is copied and its memory is kept for reuse.
  std::vector<T> take_keeping_memory() {
    return chunks_.empty() ? std::vector<T>(first_.begin(), first_.end()) : take();
  }

 private:
  [[gnu::noinline]] T* append_to_chunks(size_t count) {
    if (chunks_.empty()) {
      size_ = first_.size();
      chunks_.emplace_back(per_chunk_ * sizeof(T));
      std::copy(first_.begin(), first_.end(), chunks_.front().template as<T>());
      first_ = {};
    }
    if (size_ % per_chunk_ == 0) chunks_.emplace_back(per_chunk_ * sizeof(T));
    T* place = &(*this)[size_];
    size_ += count;
    return place;
  }

  size_t per_chunk_;
  std::vector<T> first_;  // all elements of a short list: fresh pages from the system cost more
  std::vector<Pages> chunks_;
  size_t size_ = 0;  // in the chunks
};

}  // namespace longspan
