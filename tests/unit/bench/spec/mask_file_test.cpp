// Masks written as JSON and read back, and messages about wrong files.
#include "bench/spec/mask_file.h"

#include <cstdio>
#include <fstream>
#include <functional>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <rapidcheck/gtest.h>

#include "base/error.h"
#include "bench/spec/option_json.h"
#include "unit/mask/brute_force.h"

namespace longspan {
namespace {

using ::testing::HasSubstr;

std::string message_of(const std::string& text) {
  try {
    parse_masks(text, "m.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    const std::string message = error.what();
    EXPECT_EQ(message.find('\n'), std::string::npos);
    EXPECT_EQ(message.find("m.json: "), 0u) << message;
    return message;
  }
  return "no error";
}

template <class Written>
std::string text_of(const Written& written) {
  std::ostringstream out;
  write_masks(written, out);
  return out.str();
}

RC_GTEST_PROP(MaskFile, ReadsBackWhatItWrote, ()) {
  const auto rows = *rc::gen::inRange<int64_t>(0, 30), columns = *rc::gen::inRange<int64_t>(0, 30);
  HeadMasks masks;
  for (int n = *rc::gen::inRange(1, 4); n > 0; --n) masks.push_back(random_mask(rows, columns, 6));
  RC_ASSERT(parse_masks(text_of(masks), "m.json") == masks);
}

TEST(MaskFile, EveryPatternIsReadBack) {
  for (const Pattern& pattern : patterns()) {
    PatternOptions options;
    options.seqlen = 4096;
    options.kv_heads = 2;
    options.index = 3;
    options.values.set("density", 0.3);
    const DrawnMask drawn = draw_mask(pattern.name, options);
    const std::string text = text_of(drawn);
    EXPECT_EQ(parse_masks(text, "m.json"), drawn.masks) << pattern.name;
    const auto json = nlohmann::json::parse(text);
    EXPECT_EQ(json["pattern"], pattern.name);
    EXPECT_EQ(json["seqlen"], 4096);
    EXPECT_EQ(json["seed"], 42);
    EXPECT_EQ(json["index"], 3);
    EXPECT_EQ(json["lengths"], drawn.document_lengths);
    EXPECT_EQ(json["area"], drawn.area());
    EXPECT_EQ(json["density"], drawn.density());
    EXPECT_EQ(json["heads"].size(), drawn.masks.size());
    EXPECT_EQ(json["heads"][0]["area"], drawn.masks[0].area());
    for (const auto& [name, value] : drawn.params) EXPECT_EQ(json["params"][name], bench::to_json(value));
    if (pattern.block_sparse) {
      EXPECT_EQ(json["params"]["density"], 0.3);
    }
    if (pattern.documents) {
      EXPECT_EQ(json["params"]["lengths"], "pile");
    }
  }
}

TEST(MaskFile, ReadsHandWrittenFiles) {
  const HeadMasks causal = {Mask(8, 8, {{{0, 8}, {0, 8}, kUnboundedBelow, 0}})};
  EXPECT_EQ(parse_masks(R"({"seqlen": 8, "bands": [[0, 8, 0, 8, null, 0]]})", "m.json"), causal);
  EXPECT_EQ(parse_masks(R"({"seqlen": 8, "heads": [{"bands": [[0, 8, 0, 8, null, 0]]}]})", "m.json"), causal);
  EXPECT_EQ(parse_masks(R"({"comment": "hers", "rows": 4, "columns": 9, "bands": [[0, 4, 2, 5]]})", "m.json"),
            HeadMasks{Mask(4, 9, {{{0, 4}, {2, 5}}})});
  EXPECT_EQ(parse_masks(R"({"seqlen": 8, "bands": []})", "m.json")[0].area(), 0);
}

TEST(MaskFile, SaysWhereAndWhatIsWrong) {
  EXPECT_THAT(message_of(""), HasSubstr("is not JSON: parse error at line 1, column 1"));
  EXPECT_THAT(message_of("{\"seqlen\": 8,\n \"bands\": [}"),
              HasSubstr("is not JSON: parse error at line 2, column 12"));
  EXPECT_THAT(message_of("\x80\xff\n\x01"), HasSubstr("is not JSON"));
  EXPECT_THAT(message_of("[1]"), HasSubstr("must be an object with \"seqlen\" and \"heads\", is [1]"));
  EXPECT_THAT(message_of("{}"),
              HasSubstr("needs \"seqlen\", the sequence length in tokens, or \"rows\" and \"columns\""));
  EXPECT_THAT(message_of(R"({"rows": 8})"), HasSubstr("needs \"seqlen\""));
  EXPECT_THAT(message_of(R"({"seqlen": 8, "rows": 8})"), HasSubstr("has both \"seqlen\" and \"rows\""));
  EXPECT_THAT(message_of(R"({"seqlen": -8})"),
              HasSubstr("seqlen: must be a whole number from 0 to 2147483647, is -8"));
  EXPECT_THAT(message_of(R"({"seqlen": 1e3})"), HasSubstr("seqlen: must be a whole number"));
  EXPECT_THAT(message_of(R"({"seqlen": 18446744073709551615})"), HasSubstr("seqlen: must be a whole number"));
  EXPECT_THAT(message_of(R"({"seqlen": "8K"})"), HasSubstr("seqlen: must be a whole number"));
  EXPECT_THAT(message_of(R"({"seqlen": 8})"), HasSubstr("has no \"heads\""));
  EXPECT_THAT(message_of(R"({"seqlen": 8, "heads": []})"),
              HasSubstr("heads: must be a list of at least one head"));
  EXPECT_THAT(message_of(R"({"seqlen": 8, "heads": [7]})"),
              HasSubstr("heads[0]: must be an object with \"bands\", is 7"));
  EXPECT_THAT(
      message_of(R"({"seqlen": 8, "heads": [{}]})"),
      HasSubstr("heads[0].bands: must be a list of bands, [q0, q1, k0, k1, lo, hi] each, but is missing"));
  EXPECT_THAT(message_of(R"({"seqlen": 8, "bands": 5})"), HasSubstr("bands: must be a list of bands"));
  EXPECT_THAT(message_of(R"({"seqlen": 8, "bands": [], "heads": []})"),
              HasSubstr("has both \"bands\" and \"heads\""));
  EXPECT_THAT(message_of(R"({"seqlen": 8, "band": []})"),
              HasSubstr("key \"band\" is unknown; the keys here are"));
  EXPECT_THAT(message_of(R"({"seqlen": 8, "heads": [{"bonds": []}]})"),
              HasSubstr("key \"heads[0].bonds\" is unknown"));
}

std::string message_of_bands(const std::string& bands) {
  return message_of(R"({"seqlen": 8, "heads": [{"bands": []}, {"bands": )" + bands + "}]}");
}

TEST(MaskFile, NamesTheBandThatIsWrong) {
  EXPECT_THAT(message_of_bands("[[0, 8, 0, 8], 7]"),
              HasSubstr("heads[1].bands[1]: must be [q0, q1, k0, k1] or"));
  EXPECT_THAT(message_of_bands("[[0, 8, 0]]"), HasSubstr("heads[1].bands[0]: must be [q0, q1, k0, k1] or"));
  EXPECT_THAT(message_of_bands("[[0, 9, 0, 8]]"),
              HasSubstr("heads[1].bands[0][1]: must be a whole number from 0 to 8, is 9"));
  EXPECT_THAT(message_of_bands("[[5, 4, 0, 8]]"),
              HasSubstr("bands[0][1]: must be a whole number from 5 to 8, is 4"));
  EXPECT_THAT(message_of_bands("[[0, 8, -1, 8]]"),
              HasSubstr("bands[0][2]: must be a whole number from 0 to 8, is -1"));
  EXPECT_THAT(message_of_bands("[[0, 8, 0, 8, 0.5, 1]]"), HasSubstr("bands[0][4]: must be a whole number"));
  EXPECT_THAT(message_of_bands("[[0, 8, 0, 8, 3, 1]]"), HasSubstr("lo must not be above hi"));
  EXPECT_THAT(
      message_of_bands("[[0, 4, 0, 8], [4, 8, 0, 8], [3, 5, 2, 3, null, -2]]"),
      HasSubstr(
          "heads[1].bands: bands 1 [4,8,0,8,null,null] and 2 [3,5,2,3,null,-2] overlap: both show row 4, "
          "column 2; the bands of a mask must be disjoint"));
}

TEST(MaskFile, ChecksTheAreasItIsGiven) {
  EXPECT_EQ(message_of(R"({"seqlen": 8, "heads": [{"bands": [[0, 8, 0, 8]], "area": 64}], "area": 64})"),
            "no error");
  EXPECT_THAT(message_of(R"({"seqlen": 8, "heads": [{"bands": [[0, 8, 0, 8]], "area": 63}]})"),
              HasSubstr("heads[0].area: is 63, but the bands show 64 pairs"));
  EXPECT_THAT(message_of(R"({"seqlen": 8, "heads": [{"bands": [[0, 8, 0, 8]]}], "area": 63})"),
              HasSubstr("m.json: area: is 63, but the bands show 64 pairs"));
}

TEST(MaskFile, KeepsMessagesShort) {
  EXPECT_LT(message_of(R"({"seqlen": 8, "bands": [[")" + std::string(100000, 'x') + "\"]]}").size(), 300u);
  EXPECT_LT(message_of(R"({"seqlen": 8, ")" + std::string(100000, 'x') + "\": 1}").size(), 400u);
  EXPECT_LT(message_of(std::string(100000, '[')).size(), 500u);
}

TEST(MaskFile, OnDisk) {
  EXPECT_THROW(read_masks("./no/such/mask.json"), Error);
  EXPECT_THROW(read_masks("/"), Error);
  const std::string path = ::testing::TempDir() + "longspan_mask.json";
  const HeadMasks masks = {Mask(8, 8, {{{0, 8}, {0, 8}, -3, 0}})};
  std::ofstream(path) << text_of(masks);
  EXPECT_EQ(read_masks(path), masks);
  std::remove(path.c_str());
}

}  // namespace
}  // namespace longspan
