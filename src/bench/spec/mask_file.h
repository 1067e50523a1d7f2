// Masks as JSON, as `longspan mask --json` prints them or as other tools write them.
//
// {"seqlen": 8192, "heads": [{"bands": [[q0, q1, k0, k1, lo, hi], ...]}, ...]}: rows q0 to q1 - 1 see columns
// k0 to k1 - 1 where lo <= column - row <= hi. A null bound is unbounded; both may be left out.
// docs/concepts/masks.md describes the full format.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>

#include "mask/mask.h"
#include "mask/patterns/patterns.h"

namespace longspan {

// One mask, or one per KV head. Throws an input error of one line that gives the file (`name`), the location
// and what is wrong.
HeadMasks parse_masks(std::string_view text, const std::string& name);
HeadMasks read_masks(const std::string& path);

// Writes masks alone, or masks with everything that was drawn to make them. parse_masks reads both forms.
void write_masks(const HeadMasks& masks, std::ostream& out);
void write_masks(const DrawnMask& drawn, std::ostream& out);

}  // namespace longspan
