// The readers of masks and of document lengths.
#include "mask/length_file.h"
#include "mask/mask_file.h"
#include "reads_cleanly.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  longspan::reads_cleanly(data, size,
                          [](std::string_view text) { longspan::parse_length_file(text, "fuzz.csv"); });
  return longspan::reads_cleanly(data, size,
                                 [](std::string_view text) { longspan::parse_masks(text, "fuzz.json"); });
}
