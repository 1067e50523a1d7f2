// Bootstrap replicates of a median, drawn without resampling.
#pragma once

#include <random>
#include <span>

namespace longspan::report {

// The median of a bootstrap resample (n draws with replacement) of `sorted`, which holds at least one value
// in ascending order.
//
// A resample is n draws x[floor(n * U)] with U uniform, so its order statistics are those of the U's, mapped
// the same way. The m-th of n uniforms is Beta(m, n - m + 1); the next one divides the interval from it to 1
// at a Beta(1, n - m) fraction. Two Beta draws therefore replace n draws and a selection.
double bootstrap_median(std::span<const double> sorted, std::mt19937_64& generator);

// The ordinary median; for an even count, the mean of the two middle values.
double median(std::span<const double> sorted);

}  // namespace longspan::report
