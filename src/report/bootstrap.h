// Bootstrap replicates of a median, drawn without resampling.
#pragma once

#include <random>
#include <span>

namespace longspan::report {

// The median of a bootstrap resample (n draws with replacement) of `sorted`, which holds at least one value
// in ascending order.
//
// A resample is n draws x[floor(n * U)] with U uniform, so its order statistics are those of the U's, pushed
// through the same map: the m-th of n uniforms is Beta(m, n - m + 1), and the next one above it splits the
// rest (0 beyond it, 1 at the end) as Beta(1, n - m). Two Beta draws replace n draws and a selection.
double bootstrap_median(std::span<const double> sorted, std::mt19937_64& generator);

// The ordinary median; of an even count the mean of the two in the middle.
double median(std::span<const double> sorted);

}  // namespace longspan::report
