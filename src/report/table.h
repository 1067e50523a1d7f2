// Results as a table for a terminal.
#pragma once

#include <cstdio>
#include <string>

#include "report/results.h"

namespace longspan::report {

struct TableOptions {
  int width = 0;  // columns to stay within; 0: no limit
  bool colour = false;
};

// What suits this stream: a terminal's own width (or COLUMNS) and colour, unless NO_COLOR is set or TERM is
// dumb; for a file or a pipe no limit and no colour.
TableOptions table_options_for(std::FILE* out);

// One block a setup: what it ran on, the measured cases with the fastest of equal work marked, then the
// skipped and failed ones grouped by reason.
std::string format_table(const Results& results, const TableOptions& options);
void print_table(std::FILE* out, const Results& results, const TableOptions& options);

}  // namespace longspan::report
