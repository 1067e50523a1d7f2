// Objects that Python and PyTorch's operators know by number.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#include "base/error.h"

namespace longspan::python {

inline std::atomic<int64_t> g_last_number = 0;  // of all kinds together: none is taken for another's

// Lookups are on the path of every call and take a shared lock.
template <class T>
class Numbered {
 public:
  int64_t add(std::shared_ptr<T> object) {
    const std::unique_lock lock(mutex_);
    const int64_t number = ++g_last_number;
    objects_.emplace(number, std::move(object));
    return number;
  }

  std::shared_ptr<T> find(int64_t number) const {  // throws kInput
    const std::shared_lock lock(mutex_);
    const auto found = objects_.find(number);
    LONGSPAN_CHECK_INPUT(found != objects_.end(), "plan {} does not exist, or not any more", number);
    return found->second;
  }

  // Gives the object back, to be destroyed outside of the lock; null if there is none.
  std::shared_ptr<T> remove(int64_t number) {
    const std::unique_lock lock(mutex_);
    const auto found = objects_.find(number);
    if (found == objects_.end()) return nullptr;
    std::shared_ptr<T> object = std::move(found->second);
    objects_.erase(found);
    return object;
  }

 private:
  mutable std::shared_mutex mutex_;
  std::unordered_map<int64_t, std::shared_ptr<T>> objects_;
};

}  // namespace longspan::python
