// Random bits from the kernel, for names. std::random_device would bind a program to the newest C library.
#pragma once

#include <cstdint>

namespace longspan {

uint64_t random_bits();

}  // namespace longspan
