// A CUDA device as a testbed: timing by events behind a gate, L2 flushes, clocks read through NVML.
#pragma once

#include <memory>

#include "bench/measure/testbed.h"

namespace longspan::bench {

// Makes the device current on the calling thread.
std::unique_ptr<Testbed> make_cuda_testbed(const Device& device);

}  // namespace longspan::bench
