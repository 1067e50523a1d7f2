// The sequence of masks of a case.
#include "bench/measure/mask_source.h"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "mask/picture.h"

namespace longspan::bench {
namespace {

Case case_of(const char* mask, int64_t seqlen) {
  Case c;
  c.kernel = "any";
  c.mask = mask;
  c.seqlen = seqlen;
  c.heads_q = c.heads_kv = 2;
  c.lengths = "pile";
  return c;
}

// The golden value of mask 1 after mask 0, seed 42, at 8192 tokens.
TEST(MaskSource, ContinuesTheStreamOfItsSeed) {
  const Case c = case_of("full_document", 8192);
  MaskSource source(c);
  EXPECT_EQ(source.next().area(), 15108732);
  EXPECT_EQ(source.next().area(), 31734342);
}

TEST(MaskSource, GivesOneMaskPerKvHeadIfTheyDiffer) {
  const Case c = case_of("uniform_block_sparse", 1024);
  MaskSource source(c);
  EXPECT_EQ(source.next().masks.size(), 2u);
}

TEST(MaskSource, ReadsAFile) {
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("mask_source_test_{}.json", getpid())).string();
  std::ofstream(path) << R"({"seqlen": 300, "heads": [{"bands": [[0, 300, 0, 300, null, 0]]}]})";
  const Case c = case_of(path.c_str(), 300);
  MaskSource source(c);
  EXPECT_EQ(source.next().masks.front(), (Mask(300, 300, {{{0, 300}, {0, 300}, kUnboundedBelow, 0}})));
  std::filesystem::remove(path);
}

TEST(Picture, IsTheDensityGrid) {
  for (const Pattern& pattern : patterns()) {
    const Case c = normalised(case_of(pattern.name.data(), 4096));
    MaskSource source(c);
    const Mask mask = source.next().masks.front();
    const record::Picture picture = picture_of(mask);
    EXPECT_EQ(picture.size, 48);
    EXPECT_EQ(picture.cells, density_grid(mask, 48));
  }
}

}  // namespace
}  // namespace longspan::bench
