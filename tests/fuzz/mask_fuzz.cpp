// The reader of masks, and the first operations on a mask that was read.
#include <sstream>

#include "bench/spec/mask_file.h"
#include "mask/lowering/lower.h"
#include "reads_cleanly.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace longspan;
  return reads_cleanly(data, size, [](std::string_view text) {
    const HeadMasks masks = parse_masks(text, "fuzz.json");
    for (const Mask& mask : masks) {
      if (mask.rows() > 4096 || mask.columns() > 4096) continue;  // to spend the time on bands, not on rows
      int64_t seen = 0;
      for (int64_t count : mask.visible_counts()) seen += count;
      LONGSPAN_CHECK(seen == mask.area(), "rows see {} of {} visible pairs", seen, mask.area());
      LONGSPAN_CHECK(lower(mask, {64, 32}).area == mask.area(), "the tile map has another area");
    }
    // A written mask is read back unchanged.
    std::ostringstream out;
    write_masks(masks, out);
    LONGSPAN_CHECK(parse_masks(out.str(), "written.json") == masks, "a mask written is not the mask read");
  });
}
