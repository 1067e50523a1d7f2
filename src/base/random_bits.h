// Random bits from the kernel, for names of files and runs.
#pragma once

#include <cstdint>

namespace longspan {

uint64_t random_bits();

}  // namespace longspan
