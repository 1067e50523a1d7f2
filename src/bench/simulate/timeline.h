// A simulated pass as a timeline that ui.perfetto.dev opens: a track for each rank, and its transfers.
#pragma once

#include <string>

#include "bench/simulate/predict.h"

namespace longspan::bench {

// Each such file begins with this.
inline constexpr std::string_view kTimelineBegin = "{\"traceEvents\":[";

std::string timeline_json(const SimulatedPass& pass);

}  // namespace longspan::bench
