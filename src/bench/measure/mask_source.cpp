// Draws the masks of a pattern, or reads them from the case's mask file.
#include "bench/measure/mask_source.h"

#include "bench/spec/mask_file.h"
#include "mask/picture.h"

namespace longspan::bench {

MaskSource::MaskSource(const Case& c) : case_(c), generator_(c.seed) {}

DrawnMask MaskSource::next() {
  if (!case_.mask_is_file()) {
    return draw_mask(pattern_from_name(case_.mask), case_.pattern_options(index_++), generator_);
  }
  DrawnMask drawn;
  drawn.pattern = case_.mask;
  drawn.masks = read_masks(case_.mask);
  return drawn;
}

record::Picture picture_of(const Mask& mask) {
  constexpr int kSize = 48;
  return {kSize, density_grid(mask, kSize)};
}

}  // namespace longspan::bench
