// Division that rounds up.
#pragma once

#include <cstdint>

namespace longspan {

// Of a count that is not negative: how many portions of `of` hold it.
constexpr int64_t ceil_div(int64_t count, int64_t of) {
  return (count + of - 1) / of;
}

}  // namespace longspan
