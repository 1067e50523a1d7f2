// Results as one self-contained HTML page: it makes no requests, so it opens offline and can be mailed.
#pragma once

#include <string>
#include <vector>

#include "report/results.h"

namespace longspan::report {

struct PageOptions {
  std::string title;  // empty: composed of the suites and devices
  // From the tables of strategies and patterns, for charts.
  std::vector<std::string> strategies = {};        // by series; the order fixes their colours
  std::vector<std::string> strategy_options = {};  // options that distinguish runs of one strategy
  std::vector<std::string> swept_options = {};     // numeric options of masks, usable as an x axis
};

std::string format_page(const Results& results, const PageOptions& options);

// Escapes text for use inside an element or a quoted attribute.
std::string escape_html(std::string_view text);
// Escapes JSON for use inside a <script> element, so that it cannot end the element or open a comment.
std::string escape_script_json(const std::string& json);

}  // namespace longspan::report
