// Cases: identifiers, JSON, normalisation, and the axes.
#include "bench/spec/case.h"

#include <filesystem>
#include <fstream>

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"
#include "bench/spec/filter.h"
#include "unit/base/option_samples.h"

namespace longspan::bench {
namespace {

using ::testing::HasSubstr;

Case sample_case() {
  Case c;
  c.kernel = "cpu-flash";
  c.mask = "causal_document";
  c.seqlen = 8192;
  c.heads_q = 8;
  c.heads_kv = 2;
  c.head_dim = 128;
  c.lengths = "auto";
  return c;
}

TEST(Case, CanonicalJsonIsStable) {
  Case c = normalised(sample_case());
  EXPECT_EQ(
      to_json(c).dump(),
      R"({"direction":"forward","dtype":"f32","head_dim":128,"heads_kv":2,"heads_q":8,"kernel":"cpu-flash",)"
      R"("lengths":"pile","mask":"causal_document","masks":1,"options":{},"seed":42,"seqlen":8192})");
  // Identifiers must never change, since results are compared by them.
  EXPECT_EQ(id_of(c), "9a504477d1a281b5");
}

TEST(Case, JsonRoundTrips) {
  Case c = sample_case();
  c.mask = "uniform_block_sparse";
  c.lengths.clear();
  c.direction = Direction::kBackward;
  c.dtype = DType::kBF16;
  c.options.set("block", 128).set("block_min", 64).set("prefix", 7).set("density", 0.1);
  c.options.set("window", TokenPair{1024, 0});
  c.file_hash = "00ff";
  c.seed = UINT64_MAX;
  c.deterministic = c.sinks = c.alibi = true;
  c.softcap = 0.3;
  EXPECT_EQ(case_from_json(nlohmann::json::parse(to_json(c).dump())), c);
}

TEST(Case, EveryKeyChangesTheIdentifier) {
  const Case base = sample_case();
  std::set<std::string> ids{id_of(base)};
  const auto add = [&](auto change) {
    Case c = base;
    change(c);
    EXPECT_TRUE(ids.insert(id_of(c)).second);
  };
  add([](Case& c) { c.kernel = "cpu-naive"; });
  add([](Case& c) { c.mask = "full"; });
  add([](Case& c) { c.seqlen = 8193; });
  add([](Case& c) { c.heads_q = 16; });
  add([](Case& c) { c.heads_kv = 8; });
  add([](Case& c) { c.head_dim = 64; });
  add([](Case& c) { c.dtype = DType::kBF16; });
  add([](Case& c) { c.direction = Direction::kBackward; });
  add([](Case& c) { c.masks = 2; });
  add([](Case& c) { c.lengths = "pile"; });
  add([](Case& c) { c.seed = 43; });
  add([](Case& c) { c.options.set("window", TokenPair{1, 1}); });
  add([](Case& c) { c.options.set("prefix", 1); });
  add([](Case& c) { c.options.set("block", 1); });
  add([](Case& c) { c.options.set("block_min", 1); });
  add([](Case& c) { c.options.set("density", 1.0); });
  add([](Case& c) { c.file_hash = "1"; });
  add([](Case& c) { c.deterministic = true; });
  add([](Case& c) { c.sinks = true; });
  add([](Case& c) { c.softcap = 30; });
  add([](Case& c) { c.alibi = true; });
}

TEST(Case, RefusesJsonThatIsNotACase) {
  const nlohmann::json good = to_json(sample_case());
  for (const auto& [key, value] : good.items()) {
    if (key == "options" || key == "lengths") continue;
    nlohmann::json bad = good;
    bad.erase(key);
    EXPECT_THROW(case_from_json(bad), Error) << key;
    bad[key] = nlohmann::json::array();
    EXPECT_THROW(case_from_json(bad), Error) << key;
  }
  EXPECT_THROW(case_from_json(nlohmann::json(3)), Error);
}

TEST(NormalisedCase, DropsWhatThePatternDoesNotRead) {
  Case c = sample_case();
  c.mask = "causal";
  c.options.set("window", TokenPair{4, 4}).set("prefix", 3).set("block", 3).set("block_min", 3);
  c.options.set("density", 0.5);
  c.masks = 30;
  c = normalised(c);
  EXPECT_TRUE(c.options.empty());
  EXPECT_EQ(c.lengths, "");
  EXPECT_EQ(c.masks, 1);
}

TEST(NormalisedCase, AveragesOnlyRandomMasks) {
  const auto masks_of = [](const char* mask, const OptionValues& options = {}) {
    Case c = sample_case();
    c.mask = mask;
    c.masks = 30;
    c.options = options;
    return normalised(c).masks;
  };
  for (const char* drawn : {"full_document", "causal_document", "share_question", "causal_blockwise",
                            "prefix_lm_causal", "prefix_lm_document", "global_sliding_window",
                            "block_causal_document", "uniform_block_sparse", "variable_block_sparse"}) {
    EXPECT_EQ(masks_of(drawn), 30) << drawn;
  }
  for (const char* fixed : {"full", "causal", "sliding_window", "sliding_window_causal"}) {
    EXPECT_EQ(masks_of(fixed), 1) << fixed;
  }
  EXPECT_EQ(masks_of("prefix_lm_causal", OptionValues().set("prefix", 100)), 1);
  EXPECT_EQ(masks_of("global_sliding_window", OptionValues().set("window", TokenPair{100, {}})), 1);
}

TEST(NormalisedCase, ResolvesWindowsAsThePatternsDo) {
  Case c = sample_case();
  c.options.set("window", TokenPair{512, {}});
  c.mask = "sliding_window_causal";
  EXPECT_EQ(*normalised(c).options.find("window"), OptionValue(TokenPair{512, 0}));
  c.mask = "sliding_window";
  EXPECT_EQ(*normalised(c).options.find("window"), OptionValue(TokenPair{512, 512}));
}

// A normalised case has only options that its pattern accepts.
TEST(NormalisedCase, HasOnlyOptionsOfItsPattern) {
  for (const Pattern& pattern : patterns()) {
    Case c = sample_case();
    c.mask = pattern.name;
    c.seqlen = 2048;
    c.options.set("window", TokenPair{100, {}}).set("prefix", 10).set("block", 256).set("block_min", 128);
    c.options.set("density", 0.5);
    c = normalised(c);
    EXPECT_NO_THROW(draw_mask(c.mask, c.pattern_options(0))) << pattern.name;
  }
}

TEST(NormalisedCase, AMaskFileIsIdentifiedByItsContent) {
  const std::string path =
      (std::filesystem::temp_directory_path() / fmt::format("case_test_{}.json", getpid())).string();
  Case c = sample_case();
  c.mask = path;
  std::ofstream(path) << R"({"seqlen": 300, "heads": [{"bands": [[0, 300, 0, 300, null, 0]]}]})";
  const Case first = normalised(c);
  EXPECT_EQ(first.seqlen, 300);
  EXPECT_EQ(id_of(normalised(c)), id_of(first));
  std::ofstream(path) << R"({"seqlen": 300, "heads": [{"bands": [[0, 300, 0, 300, null, 1]]}]})";
  EXPECT_NE(id_of(normalised(c)), id_of(first));
  std::filesystem::remove(path);
  EXPECT_THROW(normalised(c), Error);
}

// The command of a case, parsed like a command line, gives the same case.
TEST(Case, ArgumentsMakeTheSameCase) {
  for (const Pattern& pattern : patterns()) {
    Case c = sample_case();
    c.mask = pattern.name;
    c.seqlen = 3072;
    c.masks = 2;
    c.options.set("window", TokenPair{100, {}}).set("block", 192).set("density", 0.3);
    c = normalised(c);
    const std::vector<std::string> arguments = arguments_of(c);
    Case parsed;
    for (size_t i = 1; i + 1 < arguments.size(); i += 2) {
      std::string name = arguments[i].substr(2);
      for (char& letter : name) letter = letter == '-' ? '_' : letter;
      find_axis(name)->set(parsed, arguments[i + 1]);
    }
    EXPECT_EQ(normalised(parsed), c) << pattern.name;
  }
}

// An axis reads the values that it prints, and the filter selects by them.
Case spread_case() {
  Case c = sample_case();
  c.heads_q = c.heads_kv = 8;
  c.parallelism = {"loongtrain", 8, 2, {}, Transport::kNccl};
  c.parallelism.options.set("ulysses", 2).set("inner_ring", 2).set("placement", "context-first");
  c.parallelism.options.set("sharding", "zigzag").set("skip", false);
  return c;
}

TEST(Axes, ValuesRoundTripAndCanBeFilteredBy) {
  Case c = sample_case();
  c.deterministic = c.sinks = c.alibi = true;
  c.softcap = 12.5;
  c.head_dim_v = 64;
  c.parallelism = spread_case().parallelism;
  constexpr int64_t kCounts[] = {3};
  for (const TableOption& option : pattern_options())
    c.options.set(option.spec.name, samples_of(option.spec, kCounts).back());
  for (const TableOption& option : strategy_options())
    c.parallelism.options.set(option.spec.name, samples_of(option.spec, kCounts).back());
  for (const Axis& axis : axes()) {
    Case read = c;
    axis.set(read, axis.get(c));
    EXPECT_EQ(read, c) << axis.name;
    EXPECT_TRUE(Filter(fmt::format("{}={}", axis.name, axis.get(c))).matches(c)) << axis.name;
    EXPECT_FALSE(Filter(fmt::format("{}!={}", axis.name, axis.get(c))).matches(c)) << axis.name;
  }
}

// A case of one head_dim keeps its identifier, as of a line that was published before.
TEST(HeadDimV, IsPartOfTheCaseOnlyIfItDiffers) {
  Case c = sample_case();
  const Case one = c;
  find_axis("head_dim_v")->set(c, "64");
  EXPECT_EQ(to_json(c)["head_dim_v"], 64);
  EXPECT_EQ(case_from_json(to_json(c)), c);
  EXPECT_NE(id_of(c), id_of(one));
  EXPECT_THAT(fmt::format("{}", fmt::join(arguments_of(c), " ")), HasSubstr("--head-dim-v 64"));
  EXPECT_THAT(describe(c), HasSubstr("head_dim_v=64"));
  c.head_dim_v = c.head_dim;
  EXPECT_EQ(normalised(c), normalised(one));
  EXPECT_FALSE(to_json(normalised(c)).contains("head_dim_v"));
}

// Without `deterministic`, a case keeps the identifier that it had before that axis was added: that of a
// published line of results/nvidia-h200/2026-11-21-dense.jsonl.
TEST(Deterministic, IsPartOfTheCaseOnlyIfSet) {
  const auto published = nlohmann::json::parse(
      R"({"direction":"backward","dtype":"bf16",)"
      R"("head_dim":128,"heads_kv":8,"heads_q":64,"kernel":"sm90","lengths":"pile","mask":"causal_document","masks":1,"options":{},"seed":42,"seqlen":8192})");
  const Case fast = case_from_json(published);
  EXPECT_FALSE(fast.deterministic);
  EXPECT_EQ(to_json(fast), published);
  EXPECT_EQ(id_of(normalised(fast)), "7e5efa406ea1fd84");
  EXPECT_THAT(arguments_of(fast), testing::Not(testing::Contains("--deterministic")));
  EXPECT_THAT(describe(fast), testing::Not(HasSubstr("deterministic")));

  Case c = fast;
  find_axis("deterministic")->set(c, "true");
  EXPECT_TRUE(c.deterministic);
  EXPECT_EQ(to_json(c)["deterministic"], true);
  EXPECT_NE(id_of(c), id_of(fast));
  EXPECT_EQ(case_from_json(to_json(c)), c);
  EXPECT_THAT(fmt::format("{}", fmt::join(arguments_of(c), " ")), HasSubstr("--deterministic true"));
  EXPECT_THAT(describe(c), HasSubstr("deterministic=true"));
  find_axis("deterministic")->set(c, "false");
  EXPECT_EQ(c, fast);

  for (const char* wrong : {"yes", "1", "", "True"})
    EXPECT_THROW(find_axis("deterministic")->set(c, wrong), Error) << wrong;
  nlohmann::json odd = published;
  odd["deterministic"] = "true";
  EXPECT_THROW(case_from_json(odd), Error);
}

// What else the softmax has in it is part of a case only if it is there: other cases keep their identifiers,
// which CanonicalJsonIsStable fixes.
TEST(Scores, ArePartOfTheCaseOnlyIfSet) {
  const Case plain = sample_case();
  for (const auto& [name, value, shown] : {std::tuple{"sinks", "true", "sinks=true"},
                                           {"softcap", "30", "softcap=30"},
                                           {"alibi", "true", "alibi=true"}}) {
    EXPECT_FALSE(to_json(plain).contains(name));
    Case c = plain;
    find_axis(name)->set(c, value);
    EXPECT_TRUE(to_json(c).contains(name));
    EXPECT_EQ(case_from_json(to_json(c)), c);
    EXPECT_NE(id_of(c), id_of(plain));
    EXPECT_THAT(describe(c), HasSubstr(shown));
    EXPECT_THAT(fmt::format("{}", fmt::join(arguments_of(c), " ")),
                HasSubstr(fmt::format("--{} {}", name, value)));
    nlohmann::json odd = to_json(c);
    odd[name] = "much";
    EXPECT_THROW(case_from_json(odd), Error) << name;
  }
  EXPECT_TRUE(Filter("sinks=false alibi!=true").matches(plain));
  for (const char* wrong : {"-1", "0", "nan", "inf", "much"}) {
    Case c = plain;
    EXPECT_THROW(find_axis("softcap")->set(c, wrong), Error) << wrong;
  }
}

TEST(Parallelism, IsPartOfTheCase) {
  const Case c = spread_case();
  EXPECT_EQ(case_from_json(to_json(c)), c);
  Case over_mpi = c;
  over_mpi.parallelism.transport = Transport::kMpi;
  EXPECT_EQ(case_from_json(to_json(over_mpi)), over_mpi);
  EXPECT_NE(id_of(over_mpi), id_of(c));
  EXPECT_THAT(describe(over_mpi), HasSubstr(", over mpi"));
  EXPECT_NE(id_of(c), id_of(sample_case()));
  EXPECT_FALSE(to_json(sample_case()).contains("strategy"));
  EXPECT_FALSE(to_json(sample_case()).contains("ranks"));
  EXPECT_THAT(describe(c),
              HasSubstr("loongtrain on 8 ranks of 2 nodes, ulysses 2, inner ring 2, context-first"));
}

TEST(Parallelism, TheSameWorkIsTheSameCase) {
  Case left_open = spread_case(), given = spread_case();
  left_open.parallelism.options = {};
  given.parallelism.options =
      StrategyOptions()
          .set("ulysses", 8)
          .set("inner_ring", 1);  // 8 divides the ranks and the KV heads, so the ring has one rank
  EXPECT_EQ(normalised(left_open), normalised(given));
  // Options that a strategy does not read do not change the case.
  Case ring = left_open, odd = left_open;
  ring.parallelism.strategy = odd.parallelism.strategy = "ring-p2p";
  odd.parallelism.options.set("ulysses", 4).set("placement", "context-first");
  EXPECT_EQ(normalised(ring), normalised(odd));
  odd.parallelism.options.set("sharding", "zigzag");
  EXPECT_NE(normalised(ring), normalised(odd));
}

TEST(Parallelism, RefusesIncompleteOptions) {
  Case c = sample_case();
  c.parallelism.ranks = 4;
  EXPECT_THROW(normalised(c), Error);
  c.parallelism = {};
  c.parallelism.strategy = "usp";
  EXPECT_THROW(normalised(c), Error);
  nlohmann::json json = to_json(spread_case());
  json["nodes"] = 3;
  EXPECT_THROW(case_from_json(json), Error);
  json = to_json(spread_case());
  json["ranks"] = -4;
  EXPECT_THROW(case_from_json(json), Error);
}

}  // namespace
}  // namespace longspan::bench
