// The reader of results.
#include "reads_cleanly.h"
#include "report/results.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return longspan::reads_cleanly(
      data, size, [](std::string_view text) { longspan::report::parse_results(text, "fuzz.jsonl"); });
}
