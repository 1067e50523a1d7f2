// The reader of single lines of results, which --resume uses.
#include "reads_cleanly.h"
#include "record/results_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return longspan::reads_cleanly(data, size,
                                 [](std::string_view text) { longspan::record::parse_results_line(text); });
}
