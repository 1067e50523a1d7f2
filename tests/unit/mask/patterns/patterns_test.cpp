// Every pattern: golden areas, its formula by brute force, its parameters.
#include "mask/patterns/patterns.h"

#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "unit/base/option_samples.h"
#include "unit/mask/brute_force.h"

namespace longspan {
namespace {

using ::testing::HasSubstr;

DrawnMask draw(std::string_view name, int64_t seqlen, int64_t index = 0, uint64_t seed = 42) {
  PatternOptions options;
  options.seqlen = seqlen;
  options.index = index;
  options.seed = seed;
  return draw_mask(name, options);
}

int64_t param(const DrawnMask& drawn, std::string_view name) {
  for (const auto& [key, value] : drawn.params)
    if (key == name) return std::get<int64_t>(value);
  ADD_FAILURE() << drawn.pattern << " has no parameter " << name;
  return -1;
}

// Published results name them.
TEST(Patterns, KeepTheirNames) {
  std::set<std::string> names;
  for (const Pattern& pattern : patterns()) EXPECT_TRUE(names.emplace(pattern.name).second) << pattern.name;
  EXPECT_THAT(names, ::testing::IsSupersetOf({"full", "causal", "full_document", "causal_document",
                                              "sliding_window", "sliding_window_causal", "share_question",
                                              "causal_blockwise", "prefix_lm_causal", "prefix_lm_document",
                                              "global_sliding_window", "block_causal_document",
                                              "uniform_block_sparse", "variable_block_sparse"}));
}

struct Golden {
  const char* pattern;
  int64_t at_1024, at_8192, at_8192_mask_1, at_49152;
};

constexpr Golden kGolden[] = {
    {"full_document", 447594, 15108732, 31734342, 67918544},
    {"causal_document", 224309, 7558462, 15871267, 33983848},
    {"sliding_window", 1048576, 15735808, 15735808, 99662848},
    {"sliding_window_causal", 524800, 7872000, 7872000, 49856000},
    {"share_question", 461172, 10325629, 19853554, 60474663},
    {"causal_blockwise", 234449, 8271614, 17578559, 141074943},
    {"prefix_lm_causal", 550906, 35222928, 33642373, 2086019593},
    {"prefix_lm_document", 321011, 7849026, 3029830, 35347597},
    {"global_sliding_window", 913520, 58397512, 14146858, 1620820098},
    {"block_causal_document", 1048576, 19922944, 20971520, 121634816},
};

TEST(Patterns, GoldenAreas) {
  for (const Golden& golden : kGolden) {
    EXPECT_EQ(draw(golden.pattern, 1024).area(), golden.at_1024) << golden.pattern;
    EXPECT_EQ(draw(golden.pattern, 8192).area(), golden.at_8192) << golden.pattern;
    EXPECT_EQ(draw(golden.pattern, 8192, 1).area(), golden.at_8192_mask_1) << golden.pattern;
    EXPECT_EQ(draw(golden.pattern, 49152).area(), golden.at_49152) << golden.pattern;
  }
}

TEST(Patterns, GoldenParameters) {
  EXPECT_EQ(param(draw("prefix_lm_causal", 1024), "prefix"), 229);
  EXPECT_EQ(param(draw("prefix_lm_causal", 8192), "prefix"), 1825);
  EXPECT_EQ(param(draw("prefix_lm_causal", 49152), "prefix"), 41906);
  EXPECT_EQ(param(draw("prefix_lm_document", 1024), "prefix"), 303);
  EXPECT_EQ(param(draw("prefix_lm_document", 8192), "prefix"), 236);
  EXPECT_EQ(param(draw("prefix_lm_document", 49152), "prefix"), 206);
  EXPECT_EQ(param(draw("global_sliding_window", 1024), "window"), 328);
  EXPECT_EQ(param(draw("global_sliding_window", 8192), "window"), 2620);
  EXPECT_EQ(param(draw("global_sliding_window", 49152), "window"), 10477);
}

TEST(Patterns, GoldenLongMix) {
  PatternOptions options;
  options.seqlen = 131072;
  options.lengths = "long-mix";
  const DrawnMask drawn = draw_mask("full_document", options);
  EXPECT_EQ(drawn.area(), 1682916452);
  EXPECT_EQ(drawn.document_lengths.size(), 84u);
  EXPECT_EQ(drawn.lengths, "long-mix");
  EXPECT_EQ(draw_mask("causal_document", options).area(), 841523762);
}

// The conditions of the reference, evaluated pair by pair from the drawn values.
using Condition = std::function<bool(int64_t i, int64_t j)>;

Condition condition_of(const DrawnMask& drawn) {
  std::vector<int64_t> d, s;  // document and its first token
  for (size_t n = 0; n < drawn.document_lengths.size(); ++n) {
    const auto start = static_cast<int64_t>(d.size());
    d.insert(d.end(), drawn.document_lengths[n], static_cast<int64_t>(n));
    s.insert(s.end(), drawn.document_lengths[n], start);
  }
  const int64_t last = d.empty() ? 0 : d.back();
  const std::string& name = drawn.pattern;
  if (name == "full") return [](int64_t, int64_t) { return true; };
  if (name == "causal") return [](int64_t i, int64_t j) { return j <= i; };
  if (name == "full_document") return [=](int64_t i, int64_t j) { return d[i] == d[j]; };
  if (name == "causal_document") return [=](int64_t i, int64_t j) { return d[i] == d[j] && j <= i; };
  if (name == "sliding_window") {
    const int64_t left = param(drawn, "window_left"), right = param(drawn, "window_right");
    return [=](int64_t i, int64_t j) { return -right <= i - j && i - j <= left; };
  }
  if (name == "sliding_window_causal") {
    const int64_t left = param(drawn, "window_left");
    return [=](int64_t i, int64_t j) { return 0 <= i - j && i - j <= left; };
  }
  if (name == "share_question")
    return [=](int64_t i, int64_t j) { return j <= i && (d[i] == d[j] || d[j] == 0); };
  if (name == "causal_blockwise")
    return [=](int64_t i, int64_t j) { return j <= i && (d[i] == d[j] || d[i] == last); };
  if (name == "prefix_lm_causal") {
    const int64_t p = param(drawn, "prefix");
    return [=](int64_t i, int64_t j) { return j <= i || (i < p && j < p); };
  }
  if (name == "prefix_lm_document") {
    const int64_t p = param(drawn, "prefix");
    return [=](int64_t i, int64_t j) { return d[i] == d[j] && (j <= i || j - s[j] < p); };
  }
  if (name == "global_sliding_window") {
    const int64_t w = param(drawn, "window");
    return [=](int64_t i, int64_t j) { return j < w || i < w || std::abs(i - j) <= w; };
  }
  if (name == "block_causal_document") {
    const int64_t b = param(drawn, "block");
    return [=](int64_t i, int64_t j) { return d[i] == d[j] && j / b <= i / b; };
  }
  ADD_FAILURE() << "condition_of() has no condition for " << name << ": add it";
  return [](int64_t, int64_t) { return false; };
}

void expect_formula(const DrawnMask& drawn) {
  const int64_t n = drawn.options.seqlen;
  const Condition visible = condition_of(drawn);
  Matrix expected(n, n);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) expected.at(i, j) = visible(i, j);
  ASSERT_EQ(drawn.masks.size(), 1u);
  EXPECT_TRUE(matrix_of(drawn.masks[0]) == expected)
      << drawn.pattern << " of " << n << " tokens, seed " << drawn.options.seed;
  EXPECT_EQ(drawn.area(), expected.area());
}

TEST(Patterns, MatchTheirFormulas) {
  for (const Pattern& pattern : patterns()) {
    if (pattern.block_sparse) continue;
    for (int64_t seqlen : {1, 2, 3, 4, 5, 7, 12, 33, 64, 96}) {
      for (uint64_t seed = 0; seed < 25; ++seed) {
        PatternOptions options;
        options.seqlen = seqlen;
        options.seed = seed;
        options.index = static_cast<int64_t>(seed % 3);
        // Parameters in proportion to these short sequences; values drawn by default are still drawn.
        options.lengths = seed % 2 ? "uniform:1:9" : "uniform:3:40";
        if (pattern.parameters() == "block") options.values.set("block", seqlen % 4 == 0 ? 4 : 1);
        const auto n = static_cast<int64_t>(seed);
        if (pattern.name == "sliding_window") options.values.set("window", TokenPair{n % 7, n % 5});
        if (pattern.name == "sliding_window_causal") options.values.set("window", TokenPair{n % 11, {}});
        expect_formula(draw_mask(pattern.name, options));
      }
    }
  }
}

// The pattern's mask with this value of an option; none if the pattern refuses the value at this length.
std::optional<DrawnMask> draw_with(const Pattern& pattern, int64_t seqlen, const OptionSpec& option,
                                   const OptionValue& value) {
  PatternOptions options;
  options.seqlen = seqlen;
  options.lengths = "uniform:2:20";
  options.values.set(option.name, value);
  try {
    return draw_mask(pattern.name, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput) << error.what();
    return std::nullopt;
  }
}

TEST(Patterns, MatchTheirFormulasWithGivenParameters) {
  constexpr int64_t kCounts[] = {0, 1, 4, 13, 39, 40, 41, 1000};
  for (const Pattern& pattern : patterns()) {
    if (pattern.block_sparse) continue;
    for (const OptionSpec& option : pattern.options) {
      int drawn_masks = 0;
      for (const OptionValue& value : samples_of(option, kCounts)) {
        for (int64_t seqlen : {1, 5, 40}) {
          SCOPED_TRACE(fmt::format("{} {}", option.name, to_text(value)));
          const std::optional<DrawnMask> drawn = draw_with(pattern, seqlen, option, value);
          if (!drawn) continue;
          expect_formula(*drawn);
          ++drawn_masks;
        }
      }
      EXPECT_GT(drawn_masks, 3) << pattern.name << " " << option.name;
    }
  }
  const DrawnMask drawn =
      draw_mask("prefix_lm_document", {.seqlen = 40, .values = OptionValues().set("prefix", 13)});
  EXPECT_EQ(param(drawn, "prefix"), 13);
}

TEST(Patterns, WindowsThatCoverTheSequenceAreFullOrCausal) {
  for (int64_t seqlen : {1, 2, 1000, 1024, 1025}) {
    EXPECT_EQ(draw("sliding_window", seqlen).masks, draw("full", seqlen).masks);
    EXPECT_EQ(draw("sliding_window_causal", seqlen).masks, draw("causal", seqlen).masks);
  }
  EXPECT_NE(draw("sliding_window", 1026).masks, draw("full", 1026).masks);
}

TEST(Patterns, ABigMaskIsAFewBands) {
  const int64_t n = 1 << 20;
  EXPECT_EQ(draw("causal", n).masks[0].bands().size(), 1u);
  EXPECT_EQ(draw("global_sliding_window", n).masks[0].bands().size(), 3u);
  const DrawnMask documents = draw("share_question", n);
  EXPECT_EQ(documents.masks[0].bands().size(), documents.document_lengths.size());
}

TEST(Patterns, AStreamDrawnOnceGivesTheMasksOfEachIndex) {
  for (const Pattern& pattern : patterns()) {
    PatternOptions options;
    options.seqlen = 2048;
    options.seed = 7;
    Mt19937 generator(options.seed);
    for (options.index = 0; options.index < 4; ++options.index) {
      const DrawnMask next = draw_mask(pattern, options, generator), apart = draw_mask(pattern.name, options);
      EXPECT_EQ(next.masks, apart.masks) << pattern.name << " " << options.index;
      EXPECT_EQ(next.params, apart.params);
      EXPECT_EQ(next.document_lengths, apart.document_lengths);
    }
  }
}

// The blocks of a mask: the start of each row of blocks, with the columns that it sees.
std::map<int64_t, std::vector<Range>> rows_of_blocks(const Mask& mask) {
  std::map<int64_t, std::vector<Range>> rows;
  for (const Band& band : mask.bands()) rows[band.q.begin].push_back(band.k);
  return rows;
}

TEST(Patterns, UniformBlocksAreSelectedByTheirShare) {
  for (int64_t block : {1, 64, 100}) {
    for (double density : {0.001, 0.05, 0.3, 0.5, 0.77, 0.999, 1.0}) {
      PatternOptions options;
      options.seqlen = 50 * block;
      options.values.set("block", block);
      options.values.set("density", density);
      options.kv_heads = 3;
      const DrawnMask drawn = draw_mask("uniform_block_sparse", options);
      ASSERT_EQ(drawn.masks.size(), 3u);
      const auto kept = static_cast<int64_t>(std::max(1.0, std::floor(density * 50)));
      for (const Mask& mask : drawn.masks) {
        const auto rows = rows_of_blocks(mask);
        EXPECT_EQ(rows.size(), 50u);
        for (const auto& [row, columns] : rows) {
          EXPECT_EQ(row % block, 0);
          int64_t seen = 0, end = -1;
          for (const Range& range : columns) {
            EXPECT_EQ(range.begin % block, 0);
            EXPECT_GT(range.begin, end);  // adjacent blocks form one band
            seen += range.size();
            end = range.end;
          }
          EXPECT_EQ(seen, kept * block);
        }
        EXPECT_EQ(mask.area(), 50 * block * kept * block);
      }
      EXPECT_EQ(drawn.area(), 3 * 50 * block * kept * block);
      EXPECT_DOUBLE_EQ(drawn.density(), static_cast<double>(kept) / 50);
      if (density < 1) EXPECT_NE(drawn.masks[0], drawn.masks[1]);
    }
  }
}

TEST(Patterns, UniformBlocksCutByTheEndOfTheSequence) {
  PatternOptions options;
  options.seqlen = 1000;
  options.values.set("density", 1.0);
  EXPECT_EQ(draw_mask("uniform_block_sparse", options).area(), 1000 * 1000);
  options.seqlen = 1;
  EXPECT_EQ(draw_mask("uniform_block_sparse", options).area(), 1);
}

// Chi-squared over the columns, and over pairs of neighbours: selection without replacement is uniform.
TEST(Patterns, UniformBlocksAreUniform) {
  PatternOptions options;
  options.seqlen = 20;
  options.values.set("block", 1);
  options.values.set("density", 0.25);
  options.kv_heads = 4000;
  const DrawnMask drawn = draw_mask("uniform_block_sparse", options);
  std::vector<int64_t> hits(20);
  int64_t both = 0;
  for (const Mask& mask : drawn.masks)
    for (int64_t i = 0; i < 20; ++i) {
      for (const Range& range : mask.visible_keys(i))
        for (int64_t j = range.begin; j < range.end; ++j) ++hits[j];
      both += mask.visible(i, 3) && mask.visible(i, 17);
    }
  const double rows = 4000 * 20, expected = rows * 5 / 20;
  double chi_squared = 0;
  for (int64_t n : hits) chi_squared += std::pow(static_cast<double>(n) - expected, 2) / (expected * 0.75);
  EXPECT_LT(chi_squared, 43.8);  // 19 degrees of freedom, 0.1 %
  const double p = 5.0 / 20 * 4 / 19;
  EXPECT_NEAR(static_cast<double>(both), rows * p, 4 * std::sqrt(rows * p * (1 - p)));
}

TEST(Patterns, VariableBlocksKeepTheirMinimumAndNumber) {
  for (int64_t mean : {128, 256, 512, 1024}) {
    PatternOptions options;
    options.seqlen = 32768;
    options.values.set("block", mean);
    options.values.set("density", 0.2);
    options.kv_heads = 2;
    const DrawnMask drawn = draw_mask("variable_block_sparse", options);
    const int64_t n = 32768 / mean;
    ASSERT_EQ(drawn.masks.size(), 2u);
    for (const Mask& mask : drawn.masks) {
      const auto rows = rows_of_blocks(mask);
      EXPECT_EQ(static_cast<int64_t>(rows.size()), n);
      int64_t before = -128;
      for (const auto& [row, columns] : rows) {
        EXPECT_GE(row - before, 128);
        before = row;
        for (const Range& range : columns) EXPECT_GE(range.size(), 128);
      }
      if (mean > 128) {
        // Row and column boundaries are drawn independently, and independently for each head.
        const auto columns = rows_of_blocks(mask.transposed());
        EXPECT_NE(std::next(rows.begin())->first, std::next(columns.begin())->first);
      }
    }
    if (mean > 128) EXPECT_NE(drawn.masks[0], drawn.masks[1]);
    if (mean == 128) EXPECT_EQ(drawn.area(), 2 * n * std::max<int64_t>(1, n / 5) * 128 * 128);
  }
}

TEST(Patterns, VariableBlocksShowWholeBlocksOfTheGivenShare) {
  PatternOptions options;
  options.seqlen = 700;
  options.values.set("block", 50);
  options.values.set("block_min", 20);
  options.values.set("density", 0.5);
  for (options.seed = 0; options.seed < 30; ++options.seed) {
    const Mask mask = draw_mask("variable_block_sparse", options).masks[0];
    // 14 blocks each way. All rows of a row of blocks see the same 7 blocks of at least 20 columns.
    const auto rows = rows_of_blocks(mask);
    ASSERT_EQ(rows.size(), 14u);
    const auto counts = mask.visible_counts();
    for (auto row = rows.begin(); row != rows.end(); ++row) {
      const int64_t end = std::next(row) == rows.end() ? 700 : std::next(row)->first;
      for (int64_t i = row->first; i < end; ++i) EXPECT_EQ(counts[i], counts[row->first]);
      EXPECT_GE(counts[row->first], 7 * 20);
      EXPECT_LE(counts[row->first], 700 - 7 * 20);
    }
  }
}

TEST(Patterns, ShortSequencesAreOneBlock) {
  for (int64_t seqlen : {1, 63, 127, 255})
    EXPECT_EQ(draw("variable_block_sparse", seqlen).area(), seqlen * seqlen);
}

std::string message_of(std::string_view pattern, const std::function<void(PatternOptions&)>& set) {
  PatternOptions options;
  options.seqlen = 1000;
  set(options);
  try {
    draw_mask(pattern, options);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    return error.what();
  }
  return "no error";
}

TEST(Patterns, BadInputIsOneClearLine) {
  EXPECT_THAT(message_of("casual", [](auto&) {}),
              HasSubstr("'casual' is unknown (did you mean 'causal'?); the patterns are full, causal, "));
  EXPECT_THAT(message_of("full", [](auto& o) { o.seqlen = 0; }),
              HasSubstr("--seqlen 0: must be 1 to 2147483647"));
  EXPECT_THAT(message_of("full", [](auto& o) { o.seqlen = int64_t{1} << 31; }),
              HasSubstr("--seqlen 2147483648"));
  EXPECT_THAT(message_of("full", [](auto& o) { o.index = -1; }), HasSubstr("--index -1: must be at least 0"));
  EXPECT_THAT(message_of("sliding_window",
                         [](auto& o) {
                           o.values.set("window", TokenPair{1024, -2});
                         }),
              HasSubstr("--window -2: must be at least 0"));
  EXPECT_THAT(message_of("sliding_window_causal",
                         [](auto& o) {
                           o.values.set("window", TokenPair{1024, 2});
                         }),
              HasSubstr("has a left side only; give --window 1024"));
  EXPECT_THAT(message_of("global_sliding_window",
                         [](auto& o) {
                           o.values.set("window", TokenPair{5, 6});
                         }),
              HasSubstr("has one width; give --window 5"));
  EXPECT_THAT(message_of("prefix_lm_causal", [](auto& o) { o.values.set("prefix", -1); }),
              HasSubstr("--prefix -1"));
  EXPECT_THAT(message_of("block_causal_document", [](auto&) {}),
              HasSubstr("must be a multiple of the block, 1024"));
  EXPECT_THAT(message_of("block_causal_document", [](auto& o) { o.values.set("block", 0); }),
              HasSubstr("--block 0"));
  EXPECT_THAT(message_of("uniform_block_sparse", [](auto& o) { o.values.set("block", 0); }),
              HasSubstr("--block 0"));
  EXPECT_THAT(message_of("uniform_block_sparse", [](auto& o) { o.kv_heads = 0; }), HasSubstr("--kv-heads 0"));
  for (double density : {0.0, -1.0, 1.5, std::nan("")})
    EXPECT_THAT(message_of("uniform_block_sparse", [&](auto& o) { o.values.set("density", density); }),
                HasSubstr("must be above 0 and at most 1"));
  EXPECT_THAT(message_of("variable_block_sparse", [](auto& o) { o.values.set("block", 64); }),
              HasSubstr("--block-min 128: must be at least 1 and at most the mean block size (--block) 64"));
  EXPECT_THAT(message_of("causal_document", [](auto& o) { o.lengths = "nope"; }),
              HasSubstr("--lengths nope"));
}

TEST(Draw, AnyIndexIsDrawnOrRefusedWithTheLargest) {
  for (const Pattern& pattern : patterns()) {
    const std::string name(pattern.name);
    const auto message_of_index = [&](int64_t index) {
      return message_of(name, [&](auto& o) {
        o.seqlen = 1024;
        o.index = index;
      });
    };
    const std::string refused = message_of_index(std::numeric_limits<int64_t>::max());
    const size_t limit = refused.rfind(" is ");
    if (refused.find("--index 9223372036854775807: too many masks") == std::string::npos) {
      EXPECT_EQ(refused, "no error") << name;  // its masks are all the same
      continue;
    }
    if (name != "prefix_lm_causal") continue;  // drawing as many as are allowed takes long
    const int64_t most = std::stoll(refused.substr(limit + 4));
    EXPECT_GE(most, 4) << name;
    EXPECT_EQ(message_of_index(most), "no error") << name;
    EXPECT_THAT(message_of_index(most + 1), HasSubstr("too many masks")) << name;
  }
}

TEST(Draw, MasksThatNoMachineHoldsAreRefused) {
  const auto refused = [](const std::string& name, const std::function<void(PatternOptions&)>& set) {
    PatternOptions options;
    options.seqlen = kMaxTokens;
    set(options);
    try {
      draw_mask(name, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kOutOfMemory);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(refused("uniform_block_sparse", [](auto& o) { o.values.set("block", 1); }),
              HasSubstr("out of memory: 1 masks of 2147483647 x 2147483647 blocks need about"));
  EXPECT_THAT(refused("variable_block_sparse", [](auto& o) { o.values.set("block", 1).set("block_min", 1); }),
              HasSubstr("out of memory: 1 masks"));
  for (const char* name : {"uniform_block_sparse", "variable_block_sparse"})
    EXPECT_THAT(refused(name, [](auto& o) { o.kv_heads = std::numeric_limits<int64_t>::max(); }),
                HasSubstr("out of memory: 9223372036854775807 masks"));
}

}  // namespace
}  // namespace longspan
