// The CPU as a testbed: steady clock, cache lines flushed one by one, memory as Linux accounts for it.
#pragma once

#include <functional>
#include <memory>

#include "bench/measure/testbed.h"

namespace longspan::bench {

using MeasureCeiling = std::function<Ceiling(DType)>;

std::unique_ptr<Testbed> make_cpu_testbed(const Device& device, MeasureCeiling measure_ceiling);

Clock& steady_clock();

}  // namespace longspan::bench
