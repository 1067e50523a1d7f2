// Suites: expansion to cases, messages about wrong files, and the built-in suites.
#include "bench/spec/suite.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "base/error.h"

namespace longspan::bench {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

const std::vector<std::string> kKernels{"cpu-naive", "cpu-flash"};

std::vector<Case> cases_of(const std::string& text) {
  return expand(parse_suite(text, "test.toml"), kKernels, kKernels);
}

std::string failure(const std::string& text) {
  try {
    cases_of(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_THAT(error.what(), testing::Not(HasSubstr("\n")));
    return error.what();
  }
  return "no error";
}

TEST(Suite, EveryCombinationIsACase) {
  const auto cases = cases_of(R"(
    [[case]]
    mask = ["full", "causal"]
    seqlen = [1024, "2K"]
    heads = ["4:2", 4]
    direction = ["fwd", "bwd"]
  )");
  ASSERT_EQ(cases.size(), 2u * 2 * 2 * 2 * 2);
  EXPECT_EQ(cases.front().kernel, "cpu-naive");
  EXPECT_EQ(cases.back().kernel, "cpu-flash");
  EXPECT_EQ(cases[0].direction, Direction::kForward);
  EXPECT_EQ(cases[1].direction, Direction::kBackward);  // the last axis varies fastest
  EXPECT_EQ(cases[2].heads_kv, 4);
  EXPECT_EQ(cases[4].seqlen, 2048);
}

TEST(Suite, DeterministicIsAnAxis) {
  const auto demanded = [](const std::string& value) {
    std::vector<bool> found;
    const std::string head = "[[case]]\nkernel = 'cpu-flash'\nmask = 'full'\nseqlen = 64\n";
    for (const Case& c : cases_of(head + value)) found.push_back(c.deterministic);
    return found;
  };
  EXPECT_THAT(demanded(""), testing::ElementsAre(false));
  EXPECT_THAT(demanded("deterministic = false"), testing::ElementsAre(false));
  EXPECT_THAT(demanded("deterministic = true"), testing::ElementsAre(true));
  EXPECT_THAT(demanded("deterministic = [false, true]"), testing::ElementsAre(false, true));
  EXPECT_THAT(demanded("deterministic = ['true', true]"), testing::ElementsAre(true));
}

TEST(Suite, AQuotedLineBreakDoesNotBreakTheMessage) {
  EXPECT_THAT(failure("[[case]]\nmask = 'full'\nseqlen = \"1\\nK\""), HasSubstr("seqlen"));
  EXPECT_THAT(failure("[[case]]\nmask = \"d\\nse\"\nseqlen = 64"), HasSubstr("'d se'"));
  EXPECT_THAT(failure("[[case]]\n\"ma\\nsk\" = 'full'\nseqlen = 64"), HasSubstr("'ma sk'"));
}

TEST(Suite, SeveralGroupsShareDefaultsAndEqualCasesCountOnce) {
  const auto cases = cases_of(R"(
    [defaults]
    kernel = "cpu-flash"
    seqlen = "1K"
    head_dim = 64
    density = [0.25, 0.5]
    [[case]]
    mask = ["full", "full"]
    [[case]]
    mask = "uniform_block_sparse"
    [[case]]
    mask = "full"
    head_dim = 32
  )");
  ASSERT_EQ(cases.size(), 4u);
  const Axis& density = *find_axis("density");
  EXPECT_EQ(density.get(cases[0]), "");  // full has none, so both densities are one case
  EXPECT_EQ(density.get(cases[1]), "0.25");
  EXPECT_EQ(density.get(cases[2]), "0.5");
  EXPECT_EQ(cases[3].head_dim, 32);
}

TEST(Suite, NamesOfGroupsOfMasks) {
  std::vector<std::string> all, dense, block_sparse;
  for (const Pattern& pattern : patterns()) {
    all.emplace_back(pattern.name);
    (pattern.block_sparse ? block_sparse : dense).emplace_back(pattern.name);
  }
  const auto masks_of = [](std::string_view group) {
    std::vector<std::string> names;
    for (const Case& c : cases_of(fmt::format("[[case]]\nkernel='cpu-flash'\nmask='{}'\nseqlen=1024", group)))
      names.push_back(c.mask);
    return names;
  };
  EXPECT_EQ(masks_of("all"), all);
  EXPECT_EQ(masks_of("dense"), dense);
  EXPECT_EQ(masks_of("block-sparse"), block_sparse);
}

TEST(Suite, ReadsTheTimingRule) {
  const Suite suite = parse_suite(R"(
    name = "mine"
    description = "of mine"
    [rule]
    warmup_s = 0.5
    min_samples = 7
    max_samples = 77
    min_time_s = 1.5
    budget_s = 2
    half_width = 0.05
    cold_cache = false
    timeout_s = 9.5
    [[case]]
    mask = "full"
    seqlen = 1
  )",
                                  "test.toml");
  EXPECT_EQ(suite.name, "mine");
  EXPECT_EQ(suite.description, "of mine");
  EXPECT_EQ(suite.rule, (TimingRule{0.5, 7, 77, 1.5, 2, 0.05, 0.95, false, 9.5}));
}

TEST(Suite, SaysWhichLineIsWrongAndWhatIsAllowed) {
  const std::string head = "[[case]]\nmask = 'full'\nseqlen = 1024\n";
  EXPECT_THAT(failure(head + "kernle = 'cpu-flash'"),
              AllOf(HasSubstr("test.toml:4: [[case]] has no key 'kernle' (did you mean 'kernel'?)"),
                    HasSubstr("head_dim")));
  EXPECT_THAT(failure("sed = 3\n" + head),
              AllOf(HasSubstr("test.toml:1: a suite has no key 'sed'"), HasSubstr("defaults")));
  EXPECT_THAT(failure("[rule]\nbudget = 3\n" + head),
              AllOf(HasSubstr("test.toml:2: [rule] has no key 'budget' (did you mean 'budget_s'?)"),
                    HasSubstr("half_width")));
  EXPECT_THAT(failure("[rule]\nhalf_width = 'wide'\n" + head),
              HasSubstr("test.toml:2: half_width 'wide': must be a number"));
  EXPECT_THAT(failure("[rule]\nmin_samples = 20\nmax_samples = 10\n" + head),
              HasSubstr("min_samples 20 is above"));
  EXPECT_THAT(failure(head + "kernel = ['cpu-flash',\n 'cpu-flsh']"),
              AllOf(HasSubstr("test.toml:5: kernel 'cpu-flsh' is unknown (did you mean 'cpu-flash'?)"),
                    HasSubstr("cpu-naive")));
  EXPECT_THAT(failure("[[case]]\nmask = 'casual'\nseqlen = 1"),
              AllOf(HasSubstr("test.toml:2:"), HasSubstr("causal_document")));
  EXPECT_THAT(failure(head + "heads = '8:3'"),
              AllOf(HasSubstr("test.toml:4: heads '8:3'"), HasSubstr("multiple")));
  EXPECT_THAT(failure(head + "heads = 0"), HasSubstr("test.toml:4: heads '0'"));
  EXPECT_THAT(failure(head + "dtype = 'fp8'"),
              AllOf(HasSubstr("test.toml:4: "), HasSubstr("f32, bf16, f16")));
  EXPECT_THAT(failure(head + "direction = 'up'"), AllOf(HasSubstr("'up'"), HasSubstr("backward")));
  EXPECT_THAT(failure(head + "density = 2"), HasSubstr("test.toml:4: density '2'"));
  for (const char* wrong : {"1", "'yes'", "[true, 'no']"}) {
    EXPECT_THAT(failure(head + "deterministic = " + wrong),
                AllOf(HasSubstr("test.toml:4: deterministic '"), HasSubstr("must be true or false")));
  }
  EXPECT_THAT(failure(head + "head_dim = []"), HasSubstr("test.toml:4: 'head_dim' is an empty list"));
  EXPECT_THAT(failure(head + "head_dim = {a = 1}"),
              HasSubstr("test.toml:4: 'head_dim' must be a number, a string"));
  EXPECT_THAT(failure(head + "head_dim = [[1]]"),
              HasSubstr("test.toml:4: 'head_dim' must be a number, a string"));
  EXPECT_THAT(failure(head + "lengths = 'pil'"), HasSubstr("pil"));
  EXPECT_THAT(failure("[[case]]\nmask = 'full'"), HasSubstr("test.toml:1: this [[case]] lacks 'seqlen'"));
  EXPECT_THAT(failure("name = 'x'"), HasSubstr("needs at least one [[case]]"));
  EXPECT_THAT(failure("case = 3"), HasSubstr("test.toml:1: 'case' must be a list of tables"));
  EXPECT_THAT(failure("case = [3]"), HasSubstr("test.toml:1: 'case' must be a table"));
  EXPECT_THAT(failure("rule = 3\n" + head), HasSubstr("test.toml:1: 'rule' must be a table"));
  EXPECT_THAT(failure("name = 3\n" + head), HasSubstr("test.toml:1: 'name' must be a string in quotes"));
  EXPECT_THAT(failure("mask = = 3"), HasSubstr("test.toml:1:"));
  EXPECT_THAT(failure("[[case]\n"), HasSubstr("test.toml:1:"));
}

TEST(Suite, ThrowsOnlyLongspanErrors) {
  for (const std::string& text :
       {std::string(), std::string("\0\0", 2), std::string("\xff\xfe"), std::string(100000, '['),
        std::string(2 << 20, '#'), "a = " + std::string(5000, '['),
        std::string("[[case]]\nseqlen = 99999999999999999999"),
        std::string("[[case]]\nmask='full'\nseqlen=nan"),
        std::string("[[case]]\nmask='full'\nseqlen=1979-05-27")}) {
    EXPECT_THROW(cases_of(text), Error) << text.substr(0, 40);
  }
}

TEST(Suite, MaskFilesNeedNoLengthAndAreRelativeToTheSuite) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("suite_test_{}", getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "mine.json")
      << R"({"seqlen": 300, "heads": [{"bands": [[0, 300, 0, 300, null, 0]]}]})";
  std::ofstream(folder / "mine.toml") << "[[case]]\nmask = 'mine.json'\nkernel = 'cpu-flash'\n";
  const auto cases = expand(read_suite((folder / "mine.toml").string()), kKernels, kKernels);
  ASSERT_EQ(cases.size(), 1u);
  EXPECT_EQ(cases[0].seqlen, 300);
  EXPECT_EQ(cases[0].mask, std::filesystem::proximate(folder / "mine.json").string());
  std::filesystem::remove_all(folder);
}

TEST(Suite, RefusesTooManyCases) {
  std::string seeds;
  for (int i = 0; i < 400; ++i) seeds += fmt::format("{},", i);
  EXPECT_THAT(failure(fmt::format("[[case]]\nmask='full'\nseqlen=[{0}]\nseed=[{0}]", seeds.substr(2))),
              HasSubstr("more than 100000 cases"));
}

// Kernels that suites name and this build lacks.
std::vector<std::string> peers() {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(PEERS_FOLDER)) {
    std::string name = file.path().stem();
    if (file.path().extension() != ".py" || name == "worker") continue;
    std::replace(name.begin(), name.end(), '_', '-');
    names.push_back(name);
  }
  return names;
}

std::vector<KernelRow> lacking_rows() {
  std::vector<std::string> names = peers();
  names.insert(names.end(), {"sm90", "portable", "gpu-naive"});
  std::vector<KernelRow> rows;
  for (const std::string& name : names)
    rows.emplace_back().name = name, rows.back().reason = "not in this build (no CUDA)";
  return rows;
}

TEST(Suite, MayNameKernelsThatThisBuildLacks) {
  const Suite suite = parse_suite("[[case]]\nkernel='sm90'\nmask='full'\nseqlen=64", "test.toml");
  ASSERT_EQ(expand(suite, kKernels, kKernels, lacking_rows()).size(), 1u);
  EXPECT_THROW(expand(suite, kKernels, kKernels), Error) << "a name that no table has";
  // A name that was typed is wanted.
  Suite typed = suite;
  typed.groups[0].values["kernel"][0].where = "--kernel";
  EXPECT_THAT(
      [&] { expand(typed, kKernels, kKernels, lacking_rows()); },
      testing::ThrowsMessage<Error>(HasSubstr("--kernel: kernel 'sm90' is not in this build (no CUDA)")));
}

TEST(Suite, BuiltInOnesExpand) {
  std::set<std::string> names;
  for (const BuiltinSuite& builtin : builtin_suites()) {
    names.emplace(builtin.name);
    const Suite suite = find_suite(std::string(builtin.name));
    EXPECT_EQ(suite.name, builtin.name);
    EXPECT_FALSE(suite.description.empty()) << builtin.name;
    EXPECT_FALSE(expand(suite, kKernels, kKernels, lacking_rows()).empty()) << builtin.name;
    // They equal the files in the repository.
    const Suite file = read_suite(fmt::format("{}/{}.toml", SUITES_FOLDER, builtin.name));
    EXPECT_EQ(file.description, suite.description);
  }
  EXPECT_THAT(names, testing::IsSupersetOf(
                         {"quick", "dense", "sparse", "models", "paper-1", "paper-2", "paper-3", "release"}));
}

TEST(Suite, QuickHasEveryMaskBothKernelsAndBothPasses) {
  const auto cases = expand(find_suite("quick"), kKernels, kKernels);
  std::set<std::string> alone, spread;
  for (const Case& c : cases) {
    const std::string text = fmt::format("{} {} {}", c.kernel, c.mask, name_of(c.direction));
    c.parallelism ? spread.insert(c.parallelism.strategy + text) : alone.insert(text);
    if (c.parallelism) {
      EXPECT_EQ(c.parallelism.ranks, 4);
    }
  }
  EXPECT_EQ(alone.size(), patterns().size() * 2 * 2);
  EXPECT_EQ(spread.size(), strategies().size() * 2 * 2);
  EXPECT_EQ(cases.size(), alone.size() + spread.size());
}

// The shapes of arXiv 2510.17896.
TEST(Suite, DenseAndSparseHaveThePapersShapes) {
  const auto dense = expand(find_suite("dense"), kKernels, {"k"});
  std::map<std::string, size_t> heads;
  for (const Case& c : dense) ++heads[fmt::format("{}:{} {}", c.heads_q, c.heads_kv, c.head_dim)];
  // The paper's, at each length, and equal heads at two of them.
  EXPECT_THAT(heads, ElementsAre(Pair("32:32 128", 12 * 2 * 2), Pair("64:64 128", 12 * 2 * 2),
                                 Pair("64:8 128", 12 * 9 * 2)));
  const auto sparse = expand(find_suite("sparse"), kKernels, {"k"});
  // Blocks of 64 are also run with as many KV heads as query heads, at 48K.
  EXPECT_EQ(sparse.size(), (2u + 4) * 5 * 6 * 2 * 2 + 5 * 2);
}

// Every mask at each length, and every peer: what README's sentence about a release rests on.
TEST(Suite, ReleaseHasEveryMaskAndKernelAtItsLengths) {
  std::map<std::string, std::set<std::string>> kernels_of, masks_at;
  for (const Case& c : expand(find_suite("release"), kKernels, kKernels, lacking_rows())) {
    kernels_of[c.mask].insert(c.kernel);
    masks_at[fmt::format("{} {}", c.seqlen, name_of(c.direction))].insert(c.mask);
  }
  std::set<std::string> dense;
  for (const Pattern& pattern : patterns()) {
    if (pattern.block_sparse) continue;
    dense.emplace(pattern.name);
  }
  for (const char* at : {"1024 forward", "1024 backward", "4096 forward", "4096 backward", "8192 forward",
                         "8192 backward", "32768 forward", "32768 backward"})
    EXPECT_THAT(masks_at[at], testing::IsSupersetOf(dense)) << at;
  std::set<std::string> measured;
  for (const auto& [mask, kernels] : kernels_of) measured.insert(kernels.begin(), kernels.end());
  for (const std::string& name : peers()) EXPECT_TRUE(measured.contains(name)) << name;
}

TEST(Suite, ModelsHaveTheirShapes) {
  std::set<std::string> shapes;
  for (const Case& c : expand(find_suite("models"), kKernels, kKernels, lacking_rows())) {
    if (c.seqlen < 4096) continue;
    const OptionValue* window = c.options.find("window");
    shapes.insert(fmt::format("{}:{} {}/{} {}{}{}", c.heads_q, c.heads_kv, c.head_dim, c.head_dim_v, c.mask,
                              window == nullptr ? "" : " " + to_text(*window), c.sinks ? " sinks" : ""));
  }
  EXPECT_THAT(shapes, testing::UnorderedElementsAre(
                          "32:8 128/0 causal", "32:8 128/0 causal_document",               // Llama 3 8B
                          "64:8 128/0 causal", "64:8 128/0 causal_document",               // Llama 3 70B
                          "16:8 256/0 causal", "16:8 256/0 sliding_window_causal 1023,0",  // Gemma 3 12B
                          "128:128 192/128 causal", "128:128 192/128 causal_document",     // DeepSeek-V3
                          "64:8 64/0 causal", "64:8 64/0 sliding_window_causal 127,0",     // gpt-oss
                          "64:8 64/0 causal sinks", "64:8 64/0 sliding_window_causal 127,0 sinks",
                          "40:40 128/0 uniform_block_sparse"));  // Wan 2.1 14B
}

TEST(Suite, NestingOfAnyDepthIsAnError) {
  const auto repeated = [](const std::string& text, size_t times) {
    std::string all;
    for (size_t i = 0; i < times; ++i) all += text;
    return all;
  };
  for (const size_t depth : {300, 30'000, 150'000}) {
    EXPECT_THAT(failure("a = " + repeated("[", depth) + repeated("]", depth)), HasSubstr("test.toml:1"));
    EXPECT_THAT(failure("a = " + repeated("{a=", depth) + "1" + repeated("}", depth)),
                HasSubstr("test.toml:1"));
    EXPECT_THAT(failure("\n" + repeated("a.", depth) + "a = 1"),
                HasSubstr("test.toml:2: a key of more than"));
    EXPECT_THAT(failure("[" + repeated("a . ", depth) + "a]"), HasSubstr("a key of more than"));
    EXPECT_THAT(failure("[[" + repeated("'a'.\"b\".", depth) + "a]]"), HasSubstr("a key of more than"));
    EXPECT_THAT(failure("a = {" + repeated("a.", depth) + "a = 1}"), HasSubstr("a key of more than"));
  }
  const std::string dots = repeated(".", 1000), rest = "\n[[case]]\nmask = 'full'\nseqlen = 64\n";
  parse_suite("description = '" + dots + "'  # " + dots + rest, "test.toml");
  parse_suite("description = '''\n" + dots + "'\n" + dots + "'''" + rest, "test.toml");
  parse_suite("description = \"\\\"" + dots + "\"" + rest, "test.toml");
}

TEST(Suite, CpHasEveryStrategyAndTheDegreesOfTheHybrids) {
  std::set<std::string> strategies_seen, degrees;
  for (const Case& c : expand(find_suite("cp"), kKernels, {"k"})) {
    if (!c.parallelism) continue;
    strategies_seen.insert(c.parallelism.strategy);
    if (c.parallelism.nodes == 2 && c.parallelism.strategy == "usp")
      degrees.insert(fmt::format("{} {}", find_axis("ulysses")->get(c), find_axis("placement")->get(c)));
  }
  EXPECT_EQ(strategies_seen.size(), strategies().size());
  EXPECT_EQ(degrees.size(), 3u * 2);
}

TEST(Suite, AnUnknownNameListsTheSuites) {
  try {
    find_suite("quik");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("did you mean 'quick'?"), HasSubstr("dense"), HasSubstr("sparse")));
  }
  EXPECT_THROW(find_suite("./no-such-file.toml"), Error);
  EXPECT_THROW(find_suite("/"), Error);
}

}  // namespace
}  // namespace longspan::bench
