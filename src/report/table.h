// Results as a terminal table.
#pragma once

#include <cstdio>
#include <string>

#include "report/results.h"

namespace longspan::report {

struct TableOptions {
  int width = 0;  // the most columns to use; 0: no limit
  bool colour = false;
};

// The options for this stream. A terminal: its width (or COLUMNS), and colour unless NO_COLOR is set or TERM
// is dumb. A file or a pipe: no limit and no colour.
TableOptions table_options_for(std::FILE* out);

// One block per setup: the device, the measured cases with the fastest of equal work marked, then the skipped
// and failed cases grouped by reason.
std::string format_table(const Results& results, const TableOptions& options);
void print_table(std::FILE* out, const Results& results, const TableOptions& options);

}  // namespace longspan::report
