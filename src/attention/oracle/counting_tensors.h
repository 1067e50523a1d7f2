// Writes and scans the counting oracle's tensors in place. On a GPU, copies over the bus would dominate the
// oracle's time.
#pragma once

#include <functional>
#include <optional>

#include "longspan/base.h"

namespace longspan {

void write_zero(const TensorView& tensor, DeviceKind kind);

// In each row, sets the elements before `first` to 1, [first, first + slots) to the sum of the unit vectors
// of the token's slots (slot_sums.h), and the rest to 0.
void write_slots(const TensorView& tensor, DeviceKind kind, int64_t first, int64_t slots);

// In each row, sets element 0 to value(token, head) and the rest to 0.
void write_first_elements(const TensorView& tensor, DeviceKind kind,
                          const std::function<double(int64_t token, int64_t head)>& value);

// The first element in memory order that is not 0. NaN counts as nonzero.
struct FoundElement {
  int64_t token = 0, head = 0, d = 0;
  double value = 0;
};
std::optional<FoundElement> first_nonzero(const TensorView& tensor, DeviceKind kind);

}  // namespace longspan
