// Pictures of masks as PNG files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "mask/mask.h"

namespace longspan {

struct PictureOptions {
  int size = 512;                           // pixels along the longer side of each mask
  std::vector<int64_t> document_lengths{};  // outlined if given
};

// One picture of all masks, side by side. Visible pairs are dark. Throws an input error if the file cannot be
// written.
void write_png(const std::string& path, std::span<const Mask> masks, const PictureOptions& options = {});

}  // namespace longspan
