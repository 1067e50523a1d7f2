// Results as one self-contained HTML page: it makes no requests, so it opens offline and can be mailed.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "report/results.h"

namespace longspan::report {

struct PageOptions {
  std::string title = {};  // empty: made from the suites and devices
  // What the tables of kernels, strategies and patterns say, for charts.
  std::vector<std::pair<std::string, std::string>> kernel_colours = {};  // {"sm90", "#c8500a"}
  std::vector<std::string> strategies = {};        // by their series: the order fixes each one's colour
  std::vector<std::string> strategy_options = {};  // that tell ways to run a strategy apart
  std::vector<std::string> swept_options = {};     // numeric options of masks: charts can run over them
  std::string plainest_mask = {};                  // the one that charts show first
  record::Json experiment = {};                    // of experiment_json(); null: none
};

// The bytes that every page begins with.
std::string_view page_begin();

// A browser needs seconds to draw more.
inline constexpr size_t kMostCases = 20'000;

// Throws an input error if there are more cases than that.
std::string format_page(const Results& results, const PageOptions& options);

// Escapes text for use inside an element or a quoted attribute.
std::string escape_html(std::string_view text);
// Escapes JSON for use inside a <script> element, so that it cannot end the element or open a comment.
std::string escape_script_json(const std::string& json);

}  // namespace longspan::report
