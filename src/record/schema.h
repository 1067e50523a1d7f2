// docs/reference/results.md, made from the same list of fields that writes and reads results.
#pragma once

#include <string>

namespace longspan::record {

std::string results_page();  // Markdown

}  // namespace longspan::record
