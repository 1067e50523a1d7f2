// The shapes that are compiled, each for both dtypes, and the way from a shape to its instance.
#pragma once

#include <array>
#include <cstddef>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "kernels/portable/isa/device.h"
#include "kernels/portable/params.h"
#include "kernels/portable/tuning/generic.h"
#include "kernels/portable/tuning/h200.h"
#include "longspan/base.h"

namespace longspan::portable {

// Lists one after another; a shape may be in several.
template <class Shape, size_t... kCounts>
constexpr auto joined(const Shape (&... lists)[kCounts]) {
  std::array<Shape, (kCounts + ...)> all{};
  size_t at = 0;
  const auto add = [&](const auto& list) {
    for (const Shape& shape : list) all[at++] = shape;
  };
  (add(lists), ...);
  return all;
}

#ifdef LONGSPAN_PORTABLE_TRIALS  // of tools/probes/portable_probe.cpp
namespace trials {
inline constexpr ForwardShape kForwardShapes[] = {LONGSPAN_PORTABLE_FORWARD_TRIALS};
inline constexpr BackwardShape kBackwardShapes[] = {LONGSPAN_PORTABLE_BACKWARD_TRIALS};
}  // namespace trials
#define LONGSPAN_PORTABLE_TRIED(list) , trials::list
#else
#define LONGSPAN_PORTABLE_TRIED(list)
#endif

inline constexpr auto kForwardInstances =
    joined(generic::kForwardShapes, h200::kForwardShapes LONGSPAN_PORTABLE_TRIED(kForwardShapes));
inline constexpr auto kBackwardInstances =
    joined(generic::kBackwardShapes, h200::kBackwardShapes LONGSPAN_PORTABLE_TRIED(kBackwardShapes));

// Calls `body` with the index, as a type, of the shape among `shapes`.
template <class Shape, size_t kCount, class Body>
void with_instance(const std::array<Shape, kCount>& shapes, const Shape& shape, const Body& body) {
  const bool found = [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
    return ((shape == shapes[kIndex] && (body(std::integral_constant<size_t, kIndex>()), true)) || ...);
  }
  (std::make_index_sequence<kCount>());
  LONGSPAN_CHECK(found, "no instance of the portable kernel has head_dim {}, {} rows and {} keys",
                 shape.head_dim, shape.rows, shape.keys);
}

// Calls `body` with the element type, and with whether scores are more than scaled products, as values.
template <class Body>
void with_policy(DType dtype, const ScoreChange& change, const Body& body) {
#ifdef LONGSPAN_PORTABLE_TRIALS
  LONGSPAN_CHECK(dtype == DType::kBF16 && !change.any(), "trials are compiled for plain scores in bf16");
  body(Bf16(), std::false_type());
#else
  const auto of_element = [&](auto element) {
    change.any() ? body(element, std::true_type()) : body(element, std::false_type());
  };
  dtype == DType::kBF16 ? of_element(Bf16()) : of_element(F16());
#endif
}

}  // namespace longspan::portable
