#include "report/png_file.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <png.h>

#include "base/error.h"
#include "mask/picture.h"

namespace longspan {
namespace {

using Colour = std::array<uint8_t, 3>;
constexpr Colour kHidden{244, 246, 248}, kVisible{29, 78, 137}, kOutline{240, 138, 36}, kPage{255, 255, 255};
constexpr int kShades = 127, kGap = 8, kHeadsPerLine = 4;

// Palette: the shades from hidden to visible, the same shades under an outline, and the background.
constexpr int kOutlined = kShades, kPageIndex = 2 * kShades;

Colour mix(const Colour& a, const Colour& b, double share) {
  Colour colour;
  for (size_t i = 0; i < 3; ++i) colour[i] = static_cast<uint8_t>(std::lround(a[i] + (b[i] - a[i]) * share));
  return colour;
}

std::vector<Colour> palette() {
  std::vector<Colour> colours;
  colours.reserve(2 * kShades + 1);
  for (int i = 0; i < kShades; ++i) colours.push_back(mix(kHidden, kVisible, i / (kShades - 1.0)));
  for (int i = 0; i < kShades; ++i) colours.push_back(mix(colours[i], kOutline, 0.6));
  colours.push_back(kPage);
  return colours;
}

struct Image {
  int width = 0, height = 0;
  std::vector<uint8_t> pixels;  // indices into the palette
};

Image draw(const Mask& mask, const PictureOptions& options) {
  const double longer = static_cast<double>(std::max<int64_t>({mask.rows(), mask.columns(), 1}));
  auto side = [&](int64_t tokens) {
    return std::max(1, static_cast<int>(std::lround(options.size * static_cast<double>(tokens) / longer)));
  };
  Image image{side(mask.columns()), side(mask.rows()), {}};
  image.pixels = density_grid(mask, image.height, image.width);
  for (uint8_t& pixel : image.pixels) pixel = static_cast<uint8_t>(pixel * (kShades - 1) / 255);

  auto outline = [&](int64_t x, int64_t y) {
    uint8_t& pixel = image.pixels[y * image.width + x];
    if (pixel < kOutlined) pixel = static_cast<uint8_t>(pixel + kOutlined);
  };
  int64_t start = 0;
  for (int64_t length : options.document_lengths) {
    // The document's square. A document of two pixels or less would be all outline, so it gets none.
    const int64_t begin = start * image.width / std::max<int64_t>(mask.columns(), 1);
    start += length;
    const int64_t end =
        std::min<int64_t>(start * image.width / std::max<int64_t>(mask.columns(), 1), image.height);
    if (end - begin < 4) continue;
    for (int64_t i = begin; i < end; ++i) {
      outline(i, begin);
      outline(begin, i);
      outline(i, end - 1);
      outline(end - 1, i);
    }
  }
  return image;
}

Image side_by_side(std::span<const Mask> masks, const PictureOptions& options) {
  const auto count = static_cast<int>(masks.size());
  const int across = std::min(count, kHeadsPerLine), down = (count + kHeadsPerLine - 1) / kHeadsPerLine;
  Image sheet;
  for (int n = 0; n < count; ++n) {
    const Image image = draw(masks[n], options);
    if (n == 0) {
      sheet.width = across * (image.width + kGap) - kGap;
      sheet.height = down * (image.height + kGap) - kGap;
      sheet.pixels.assign(static_cast<size_t>(sheet.width) * static_cast<size_t>(sheet.height), kPageIndex);
    }
    const int x = n % kHeadsPerLine * (image.width + kGap), y = n / kHeadsPerLine * (image.height + kGap);
    for (int row = 0; row < image.height; ++row)
      std::copy_n(image.pixels.begin() + static_cast<int64_t>(row) * image.width, image.width,
                  sheet.pixels.begin() + static_cast<int64_t>(y + row) * sheet.width + x);
  }
  return sheet;
}

}  // namespace

std::string png_of(std::span<const Mask> masks, const PictureOptions& options) {
  LONGSPAN_CHECK(!masks.empty() && options.size > 0, "a picture of {} masks, {} pixels", masks.size(),
                 options.size);
  for (const Mask& mask : masks)
    LONGSPAN_CHECK(mask.rows() == masks[0].rows() && mask.columns() == masks[0].columns(),
                   "masks of different sizes");
  const Image sheet = side_by_side(masks, options);
  const std::vector<Colour> colours = palette();
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.format = PNG_FORMAT_RGB_COLORMAP;
  png.width = static_cast<png_uint_32>(sheet.width);
  png.height = static_cast<png_uint_32>(sheet.height);
  png.colormap_entries = static_cast<png_uint_32>(colours.size());
  std::string bytes(PNG_IMAGE_PNG_SIZE_MAX(png), '\0');
  png_alloc_size_t size = bytes.size();
  const bool written =
      png_image_write_to_memory(&png, bytes.data(), &size, 0, sheet.pixels.data(), 0, colours.data()) != 0;
  LONGSPAN_CHECK(written, "libpng: {}", png.message);
  bytes.resize(size);
  return bytes;
}

}  // namespace longspan
