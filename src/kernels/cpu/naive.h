// cpu-naive: attention by its formula, with the whole matrix of scores in memory. It is slow and simple
// enough to trust.
#pragma once

#include "attention/kernel.h"

namespace longspan {

const Kernel& cpu_naive();

}  // namespace longspan
