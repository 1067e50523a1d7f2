// Masks as JSON: what `longspan mask --json` prints, and any mask from elsewhere.
//
// {"seqlen": 8192, "heads": [{"bands": [[q0, q1, k0, k1, lo, hi], ...]}, ...]}: rows q0 to q1 - 1 see columns
// k0 to k1 - 1 as far as lo <= column - row <= hi; null, or neither given, is unbounded.
// docs/concepts/masks.md has the rest.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>

#include "mask/mask.h"
#include "mask/patterns/patterns.h"

namespace longspan {

// One mask, or one per KV head. Throws an input error of one line that names the file, the place in it, and
// what is wrong there; `name` stands for the file.
HeadMasks parse_masks(std::string_view text, const std::string& name);
HeadMasks read_masks(const std::string& path);

// Both forms are read by parse_masks: masks alone, and masks with all that was drawn to make them.
void write_masks(const HeadMasks& masks, std::ostream& out);
void write_masks(const DrawnMask& drawn, std::ostream& out);

}  // namespace longspan
