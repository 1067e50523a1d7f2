// Pictures: each cell shows the share of its visible pairs, for any sizes of mask and grid.
#include "mask/picture.h"

#include <cmath>
#include <cstdio>

#include <gtest/gtest.h>
#include <png.h>
#include <rapidcheck/gtest.h>

#include "base/error.h"
#include "brute_force.h"
#include "mask/patterns/patterns.h"
#include "report/png_file.h"

namespace longspan {
namespace {

RC_GTEST_PROP(DensityGrid, ShowsTheShareOfEachCell, ()) {
  const Mask mask = random_mask();
  RC_PRE(mask.rows() > 0 && mask.columns() > 0);
  const Matrix matrix = matrix_of(mask);
  const auto rows = *rc::gen::inRange<int>(1, 50), columns = *rc::gen::inRange<int>(1, 50);
  const auto grid = density_grid(mask, rows, columns);
  RC_ASSERT(static_cast<int>(grid.size()) == rows * columns);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t i0 = r * mask.rows() / rows, i1 = std::max(i0 + 1, (r + 1) * mask.rows() / rows);
      const int64_t j0 = c * mask.columns() / columns,
                    j1 = std::max(j0 + 1, (c + 1) * mask.columns() / columns);
      int64_t area = 0;
      for (int64_t i = i0; i < i1; ++i)
        for (int64_t j = j0; j < j1; ++j) area += matrix.at(i, j);
      const int64_t all = (i1 - i0) * (j1 - j0);
      const int shade = grid[r * columns + c];
      RC_ASSERT((shade == 0) == (area == 0));
      RC_ASSERT((shade == 255) == (area == all));
      RC_ASSERT(std::abs(shade - 255.0 * static_cast<double>(area) / static_cast<double>(all)) <= 1.0);
    }
}

TEST(DensityGrid, OfAMillionTokens) {
  PatternOptions options;
  options.seqlen = 1 << 20;
  const auto grid = density_grid(draw_mask("causal", options).masks[0], 64);
  EXPECT_EQ(grid[0], 128);
  EXPECT_EQ(grid[1], 0);
  EXPECT_EQ(grid[64], 255);
}

TEST(TextPicture, ShowsEachTokenOfASmallMask) {
  const Mask causal(3, 3, {{{0, 3}, {0, 3}, kUnboundedBelow, 0}});
  EXPECT_EQ(text_picture(causal), "██····\n████··\n██████\n");
  EXPECT_EQ(text_picture(Mask(1, 2, std::vector<Band>{})), "····\n");
  EXPECT_EQ(text_picture(Mask()), "(no tokens)\n");
  const Mask large(1000, 1000, {{{0, 1000}, {0, 1000}}});
  const std::string picture = text_picture(large);
  EXPECT_EQ(std::count(picture.begin(), picture.end(), '\n'), 32);
}

// Pixels as [height, width, 3].
std::vector<uint8_t> read_png(const std::string& bytes, png_image& image) {
  image = {};
  image.version = PNG_IMAGE_VERSION;
  EXPECT_TRUE(png_image_begin_read_from_memory(&image, bytes.data(), bytes.size()));
  image.format = PNG_FORMAT_RGB;
  std::vector<uint8_t> pixels(PNG_IMAGE_SIZE(image));
  EXPECT_TRUE(png_image_finish_read(&image, nullptr, pixels.data(), 0, nullptr));
  return pixels;
}

TEST(Png, VisiblePairsAreDark) {
  const std::vector<Mask> masks = {Mask(1000, 1000, {{{0, 1000}, {0, 1000}, kUnboundedBelow, 0}})};
  png_image image;
  const auto pixels = read_png(png_of(masks, {100, {}}), image);
  ASSERT_EQ(image.width, 100u);
  ASSERT_EQ(image.height, 100u);
  auto brightness = [&](int row, int column) {
    const uint8_t* p = &pixels[static_cast<size_t>(row * 100 + column) * 3];
    return p[0] + p[1] + p[2];
  };
  EXPECT_LT(brightness(90, 10), 300);
  EXPECT_GT(brightness(10, 90), 700);
  EXPECT_GT(brightness(50, 50), brightness(90, 10));
  EXPECT_LT(brightness(50, 50), brightness(10, 90));
}

TEST(Png, OutlinesDocumentsAndSetsHeadsSideBySide) {
  const Mask mask(100, 100, {{{0, 50}, {0, 50}}, {{50, 100}, {50, 100}}});
  const std::vector<Mask> masks(5, mask);
  png_image image;
  const auto pixels = read_png(png_of(masks, {100, {50, 50}}), image);
  EXPECT_EQ(image.width, 4u * 108 - 8);
  EXPECT_EQ(image.height, 2u * 108 - 8);
  auto red = [&](int row, int column) {
    return pixels[(static_cast<size_t>(row) * image.width + column) * 3];
  };
  EXPECT_GT(red(25, 49), red(25, 25));  // the outline of the first document
  EXPECT_GT(red(108 + 25, 49), red(25, 25));
  EXPECT_EQ(red(108 + 25, 300), 255);  // the page beyond the fifth head
}

TEST(Png, OfAnyShape) {
  for (const auto& [rows, columns] : {std::pair{0, 0}, {0, 7}, {1, 1}, {1, 5000}, {5000, 1}}) {
    const std::vector<Mask> masks = {Mask(rows, columns, std::vector<Band>{})};
    png_image image;
    read_png(png_of(masks, {64, {}}), image);
    EXPECT_LE(std::max(image.width, image.height), 64u);
  }
}

}  // namespace
}  // namespace longspan
