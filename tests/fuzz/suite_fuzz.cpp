// The reader of suites.
#include "bench/spec/suite.h"
#include "reads_cleanly.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return longspan::reads_cleanly(
      data, size, [](std::string_view text) { longspan::bench::parse_suite(text, "fuzz.toml"); });
}
