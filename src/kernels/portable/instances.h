// Finds the compiled instance of a shape.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "base/error.h"

namespace longspan::portable {

// Calls `body` with the index, as a type, of the shape among `shapes`.
template <class Shape, size_t kCount, class Body>
void with_instance(const Shape (&shapes)[kCount], const Shape& shape, const Body& body) {
  const bool found = [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
    return ((shape == shapes[kIndex] && (body(std::integral_constant<size_t, kIndex>()), true)) || ...);
  }
  (std::make_index_sequence<kCount>());
  LONGSPAN_CHECK(found, "no instance of the portable kernel has head_dim {}, {} rows and {} keys",
                 shape.head_dim, shape.rows, shape.keys);
}

}  // namespace longspan::portable
