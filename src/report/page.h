// Results as one self-contained HTML page: no request leaves it, so it opens offline and can be mailed.
#pragma once

#include <string>
#include <vector>

#include "report/results.h"

namespace longspan::report {

struct PageOptions {
  std::string title;  // empty: made from the suites and devices
  // What the tables of strategies and patterns say, for charts.
  std::vector<std::string> strategies = {};        // by their series: the order fixes each one's colour
  std::vector<std::string> strategy_options = {};  // that tell ways to run a strategy apart
  std::vector<std::string> swept_options = {};     // numeric options of masks: charts can run over them
};

std::string format_page(const Results& results, const PageOptions& options);

// Text inside an element or a quoted attribute.
std::string escape_html(std::string_view text);
// JSON inside a <script> element: nothing in it can end the element or open a comment.
std::string escape_script_json(std::string json);

}  // namespace longspan::report
