// cpu-naive: attention as its formula says, with the whole matrix of scores in memory. Slow, and easy to
// trust.
#pragma once

#include "attention/kernel.h"

namespace longspan {

const Kernel& cpu_naive();

}  // namespace longspan
