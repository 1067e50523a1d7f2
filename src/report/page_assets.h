// The files under page/, the chart library and the experiments of suites/expected/, compiled into the
// program. embed.cmake generates the definitions.
#pragma once

#include <string_view>

namespace longspan::report::page_assets {

extern const std::string_view page_html, style_css, chart_js, script_js;
extern const std::string_view paper_1_toml, paper_2_toml, paper_3_toml;
extern const std::string_view style_css_sha256, chart_js_sha256, script_js_sha256;  // in hexadecimal digits

}  // namespace longspan::report::page_assets
