// The counting oracle's tensors, written and looked through where they lie: on a GPU, copies over the bus
// would take most of the oracle's time.
#pragma once

#include <functional>
#include <optional>

#include "base/device.h"
#include "base/tensor.h"

namespace longspan {

void write_zero(const TensorView& tensor, DeviceKind kind);

// Of each row the elements before `first` become 1, [first, first + slots) the sum of the unit vectors of the
// token's slots (slot_sums.h), and the rest 0.
void write_slots(const TensorView& tensor, DeviceKind kind, int64_t first, int64_t slots);

// Of each row element 0 becomes value(token, head), and the rest 0.
void write_first_elements(const TensorView& tensor, DeviceKind kind,
                          const std::function<double(int64_t token, int64_t head)>& value);

// The first element in memory that is not 0. NaN is not.
struct FoundElement {
  int64_t token = 0, head = 0, d = 0;
  double value = 0;
};
std::optional<FoundElement> first_nonzero(const TensorView& tensor, DeviceKind kind);

}  // namespace longspan
