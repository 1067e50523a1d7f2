// Drawing masks: the share of each cell that is visible, then colours.
#include "mask/picture.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>

#include <png.h>

#include "base/error.h"

namespace longspan {
namespace {

// Where the cells of a grid lie. Cells of less than one token show the token they begin in.
std::vector<Range> cells_of(int64_t tokens, int count) {
  std::vector<Range> cells(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = i * tokens / count, end = (i + 1) * tokens / count;
    cells[i] = {begin, std::max(begin + 1, end)};
  }
  return cells;
}

// The cells that meet a range of tokens.
Range cells_that_meet(const std::vector<Range>& cells, const Range& tokens) {
  auto first = std::partition_point(cells.begin(), cells.end(),
                                    [&](const Range& cell) { return cell.end <= tokens.begin; });
  auto last =
      std::partition_point(first, cells.end(), [&](const Range& cell) { return cell.begin < tokens.end; });
  return {first - cells.begin(), last - cells.begin()};
}

}  // namespace

std::vector<uint8_t> density_grid(const Mask& mask, int rows, int columns) {
  LONGSPAN_CHECK(rows > 0 && columns > 0, "a grid of {} x {}", rows, columns);
  std::vector<uint8_t> grid(static_cast<size_t>(rows) * static_cast<size_t>(columns));
  if (mask.rows() == 0 || mask.columns() == 0) return grid;
  const auto row_cells = cells_of(mask.rows(), rows), column_cells = cells_of(mask.columns(), columns);
  std::vector<int64_t> areas(grid.size());
  for (const Band& band : mask.bands()) {
    const Range band_rows = cells_that_meet(row_cells, band.q);
    for (int64_t r = band_rows.begin; r < band_rows.end; ++r) {
      const Band slice = Band{intersection(band.q, row_cells[r]), band.k, band.lo, band.hi}.normalized();
      const Range slice_columns = cells_that_meet(column_cells, slice.k);
      for (int64_t c = slice_columns.begin; c < slice_columns.end; ++c)
        areas[r * columns + c] +=
            Band{slice.q, intersection(slice.k, column_cells[c]), slice.lo, slice.hi}.area();
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t area = areas[r * columns + c], all = row_cells[r].size() * column_cells[c].size();
      const auto share = std::lround(255.0 * static_cast<double>(area) / static_cast<double>(all));
      // Nothing and all are told apart from nearly nothing and nearly all.
      const long shade = area == 0 ? 0 : area == all ? 255 : std::clamp(share, 1l, 254l);
      grid[r * columns + c] = static_cast<uint8_t>(shade);
    }
  }
  return grid;
}

namespace {

using Colour = std::array<uint8_t, 3>;
constexpr Colour kHidden{244, 246, 248}, kVisible{29, 78, 137}, kOutline{240, 138, 36}, kPage{255, 255, 255};
constexpr int kShades = 127, kGap = 8, kHeadsPerLine = 4;

// Palette: the shades from hidden to visible, the same under an outline, and the page around the pictures.
constexpr int kOutlined = kShades, kPageIndex = 2 * kShades;

Colour mix(const Colour& a, const Colour& b, double share) {
  Colour colour;
  for (size_t i = 0; i < 3; ++i) colour[i] = static_cast<uint8_t>(std::lround(a[i] + (b[i] - a[i]) * share));
  return colour;
}

std::vector<Colour> palette() {
  std::vector<Colour> colours;
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
    // The document's square; a document of two pixels or less is all outline, and is left as it is.
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

void write_png(const std::string& path, std::span<const Mask> masks, const PictureOptions& options) {
  LONGSPAN_CHECK(!masks.empty() && options.size > 0, "a picture of {} masks, {} pixels", masks.size(),
                 options.size);
  for (const Mask& mask : masks)
    LONGSPAN_CHECK(mask.rows() == masks[0].rows() && mask.columns() == masks[0].columns(),
                   "masks of two sizes");
  const Image sheet = side_by_side(masks, options);
  const std::vector<Colour> colours = palette();
  png_image png{};
  png.version = PNG_IMAGE_VERSION;
  png.format = PNG_FORMAT_RGB_COLORMAP;
  png.width = static_cast<png_uint_32>(sheet.width);
  png.height = static_cast<png_uint_32>(sheet.height);
  png.colormap_entries = static_cast<png_uint_32>(colours.size());
  const bool written =
      png_image_write_to_file(&png, path.c_str(), 0, sheet.pixels.data(), 0, colours.data()) != 0;
  LONGSPAN_CHECK_INPUT(written, "--png {}: cannot be written: {}", path, png.message);
}

std::string text_picture(const Mask& mask, int rows) {
  // Small masks show each token, two characters wide, as characters are twice as high as they are wide.
  const auto lines = static_cast<int>(std::min<int64_t>(rows, mask.rows()));
  const auto columns = static_cast<int>(std::min<int64_t>(rows, mask.columns())) * 2;
  if (lines == 0 || columns == 0) return "(no tokens)\n";
  const auto grid = density_grid(mask, lines, columns);
  std::string text;
  for (int r = 0; r < lines; ++r) {
    for (int c = 0; c < columns; ++c) {
      const int shade = grid[static_cast<size_t>(r) * static_cast<size_t>(columns) + static_cast<size_t>(c)];
      text += shade == 0 ? "·" : shade < 86 ? "░" : shade < 171 ? "▒" : shade < 255 ? "▓" : "█";
    }
    text += '\n';
  }
  return text;
}

}  // namespace longspan
