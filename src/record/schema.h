// Generates docs/reference/results.md from the list of fields that writes and reads results.
#pragma once

#include <string>

namespace longspan::record {

std::string results_page();  // Markdown

}  // namespace longspan::record
