// A CUDA device as a testbed: times by events behind a gate, empties its L2, reads its clocks through NVML.
#pragma once

#include <memory>

#include "bench/measure/testbed.h"

namespace longspan::bench {

// The device becomes the calling thread's.
std::unique_ptr<Testbed> make_cuda_testbed(const Device& device);

}  // namespace longspan::bench
