// Memory mapped directly from the system. It is zero-initialised on first touch and returned to the system on
// destruction; the heap could keep it because of neighbouring allocations.
#pragma once

#include <cstddef>

namespace longspan {

class Pages {
 public:
  Pages() = default;
  explicit Pages(size_t bytes);  // throws std::bad_alloc
  ~Pages();
  Pages(Pages&& other) noexcept;
  Pages& operator=(Pages&& other) noexcept;

  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace longspan
