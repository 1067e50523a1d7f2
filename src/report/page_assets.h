// The files under page/ and the chart library, compiled into the program. embed.cmake generates the
// definitions.
#pragma once

#include <string_view>

namespace longspan::report::page_assets {

extern const std::string_view page_html, style_css, chart_js;
// The parts of the page's script, in this order.
extern const std::string_view data_js, filters_js, charts_js, tables_js, strategies_js, parallel_js, main_js;

}  // namespace longspan::report::page_assets
