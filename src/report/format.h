// Numbers and names formatted for display: units, three significant digits, aligned columns.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "report/results.h"

namespace longspan::report {

struct Unit {
  std::string_view name;  // "GFLOP/s"
  double scale = 1;       // FLOP/s per unit
};
Unit rate_unit(double flops_per_s);  // the most readable unit for this rate

std::string three_digits(double value);                  // 0.0123, 1.23, 12.3, 123, 1234
std::string format_time(double seconds);                 // "1.23 ms"
std::string format_bytes(double bytes);                  // "1.5 GiB"
std::string format_share(double share);                  // "61 %"
std::string format_rate(double flops_per_s, Unit unit);  // "52.1"
std::string format_seqlen(int64_t tokens);               // "8K", "1M", "1000"

// "causal", "uniform_block_sparse density 0.05 block 64": the pattern and its options that are not defaults.
std::string mask_title(const Workload& workload);
std::string heads_title(const Workload& workload);  // "8:2", query heads to KV heads
// "cpu-flash causal 8K forward f32 8:2x128", and further axes that distinguish cases.
std::string case_title(const Workload& workload);

// The number of terminal columns that UTF-8 text takes.
size_t display_width(std::string_view text);
// Cuts text to at most `width` columns and marks the cut by "...".
std::string fit(std::string_view text, size_t width);
// Breaks text at spaces into lines of at most `width` columns.
std::vector<std::string> wrap(std::string_view text, size_t width);

}  // namespace longspan::report
