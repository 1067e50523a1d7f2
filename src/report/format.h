// Numbers and names as a reader wants them: units, three significant digits, columns that line up.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "report/results.h"

namespace longspan::report {

struct Unit {
  std::string_view name;  // "GFLOP/s"
  double scale = 1;       // what one of it is worth
};
Unit rate_unit(double flops_per_s);  // the unit in which this rate reads best

std::string three_digits(double value);                  // 0.0123, 1.23, 12.3, 123, 1234
std::string format_time(double seconds);                 // "1.23 ms"
std::string format_bytes(double bytes);                  // "1.5 GiB"
std::string format_share(double share);                  // "61 %"
std::string format_rate(double flops_per_s, Unit unit);  // "52.1"
std::string format_seqlen(int64_t tokens);               // "8K", "1M", "1000"

// "causal", "uniform_block_sparse density 0.05 block 64": the pattern and what differs from its defaults.
std::string mask_title(const Workload& workload);
std::string heads_title(const Workload& workload);  // "8:2", query heads to KV heads
// "cpu-flash causal 8K forward f32 8:2x128", and what else tells a case from its neighbours.
std::string case_title(const Workload& workload);

// Text from a file made safe for a terminal: control characters become spaces.
std::string printable(std::string_view text);
// Columns that a terminal gives to UTF-8 text.
size_t display_width(std::string_view text);
// Cut to at most `width` columns, the cut shown as "...".
std::string fit(std::string_view text, size_t width);
// Broken into lines of at most `width` columns at spaces.
std::vector<std::string> wrap(std::string_view text, size_t width);

}  // namespace longspan::report
