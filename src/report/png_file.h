// Pictures of masks as PNG.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "mask/mask.h"

namespace longspan {

struct PictureOptions {
  int size = 512;                           // pixels along the longer side of each mask
  std::vector<int64_t> document_lengths{};  // outlined if given
};

// The bytes that every PNG file begins with.
inline constexpr std::string_view kPngBegin = "\x89PNG\r\n\x1a\n";

// A PNG file of all masks, side by side. Visible pairs are dark.
std::string png_of(std::span<const Mask> masks, const PictureOptions& options = {});

}  // namespace longspan
