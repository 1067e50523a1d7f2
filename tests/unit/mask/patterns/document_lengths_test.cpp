// Document lengths: the generator, the histograms, the sampler, and files of lengths.
#include "mask/patterns/document_lengths.h"

#include <cstdio>
#include <fstream>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "mask/patterns/length_file.h"

namespace longspan {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kInput);
    EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    return error.what();
  }
  return "no error";
}

// Reference values from CPython 3 with random.seed(42).
TEST(Mt19937, FollowsCPython) {
  Mt19937 generator(42);
  EXPECT_EQ(generator.random(), 0.6394267984578837);
  EXPECT_EQ(generator.random(), 0.025010755222666936);
  EXPECT_EQ(generator.random(), 0.27502931836911926);
}

TEST(Mt19937, TakesSeedsOfAnySize) {
  // python3: random.Random(seed).getrandbits(32)
  EXPECT_EQ(Mt19937(0).next(), 3626764237u);
  EXPECT_EQ(Mt19937(1).next(), 577090037u);
  EXPECT_EQ(Mt19937(0xffffffffu).next(), 2728839433u);
  EXPECT_EQ(Mt19937(0x123456789abcdef0u).next(), 3646699384u);
}

TEST(Mt19937, DrawsBelowALimit) {
  // python3: random.seed(7); [random._randbelow(n) for n in (1, 2, 3, 1000, 2**31, 2**32, 2**40, 10**15)]
  Mt19937 generator(7);
  std::vector<int64_t> draws;
  for (int64_t n : {1ll, 2ll, 3ll, 1000ll, 1ll << 31, 1ll << 32, 1ll << 40, 1000000000000000ll})
    draws.push_back(generator.randbelow(n));
  EXPECT_THAT(draws, ElementsAre(0, 0, 1, 666, 207388624, 2301595691, 470330855157, 96765774221528));
  std::vector<int> items = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  Mt19937(42).shuffle(items);
  EXPECT_THAT(items, ElementsAre(7, 3, 2, 8, 5, 6, 9, 4, 0, 1));
}

TEST(Histograms, AreThosePublished) {
  struct Expected {
    std::string name;
    size_t bins;
    double total;
  };
  const std::vector<Expected> expected = {
      {"pile", 41, 0.999555}, {"prolong64k", 44, 0.999991}, {"prolong512k", 42, 0.999508}};
  ASSERT_EQ(histograms().size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    const LengthHistogram& histogram = histograms()[i];
    EXPECT_EQ(histogram.name, expected[i].name);
    EXPECT_EQ(histogram.bins.size(), expected[i].bins);
    double total = 0;
    for (const LengthBin& bin : histogram.bins) total += bin.weight;
    EXPECT_NEAR(total, expected[i].total, 1e-9);
    for (size_t b = 1; b < histogram.bins.size(); ++b)
      EXPECT_EQ(histogram.bins[b].begin, histogram.bins[b - 1].end);
  }
}

std::vector<int64_t> sample(const std::string& name, int64_t seqlen, uint64_t seed = 42) {
  Mt19937 generator(seed);
  return LengthSource::from_name(name, seqlen).sample(seqlen, generator);
}

TEST(LengthSource, GoldenDocuments) {
  EXPECT_THAT(sample("auto", 8192),
              ElementsAre(353, 559, 102, 421, 322, 13, 129, 314, 113, 768, 618, 469, 141, 3608, 88, 86, 88));
  auto documents = sample("auto", 16384);
  documents.resize(8);
  EXPECT_THAT(documents, ElementsAre(545, 719, 166, 581, 482, 27, 161, 474));
}

TEST(LengthSource, GoldenLongMix) {
  struct Expected {
    int64_t seqlen, full, causal;
    size_t documents;
  };
  for (const Expected& expected : {Expected{65536, 809184696, 404625116, 52},
                                   {131072, 1682916452, 841523762, 84},
                                   {786432, 81158269510, 40579527971, 106}}) {
    const auto lengths = sample("long-mix", expected.seqlen);
    int64_t full = 0, causal = 0;
    for (int64_t length : lengths) {
      full += length * length;
      causal += length * (length + 1) / 2;
    }
    EXPECT_EQ(lengths.size(), expected.documents) << expected.seqlen;
    EXPECT_EQ(full, expected.full) << expected.seqlen;
    EXPECT_EQ(causal, expected.causal) << expected.seqlen;
  }
}

TEST(LengthSource, AutoFollowsTheLength) {
  auto name = [](int64_t seqlen) { return LengthSource::from_name("auto", seqlen).name(); };
  EXPECT_EQ(name(1), "pile");
  EXPECT_EQ(name(12288), "pile");
  EXPECT_EQ(name(12289), "prolong64k");
  EXPECT_EQ(name(65535), "prolong64k");
  EXPECT_EQ(name(65536), "prolong512k");
  EXPECT_EQ(name(1 << 20), "prolong512k");
  EXPECT_THAT(message_of([&] { name((1 << 20) + 1); }), HasSubstr("exceed its limit of 1M; name one of"));
}

TEST(LengthSource, EverySourcePacksExactly) {
  for (const char* name :
       {"pile", "prolong64k", "prolong512k", "long-mix", "uniform:1:7", "uniform:4096:4096"})
    for (int64_t seqlen : {1, 2, 63, 1000, 4097, 100000})
      for (uint64_t seed : {0, 1, 42}) {
        const auto lengths = sample(name, seqlen, seed);
        EXPECT_EQ(std::accumulate(lengths.begin(), lengths.end(), int64_t{0}), seqlen) << name;
        EXPECT_GE(*std::min_element(lengths.begin(), lengths.end()), 1) << name;
      }
}

TEST(LengthSource, UniformStaysInItsBounds) {
  auto lengths = sample("uniform:10:13", 10000);
  lengths.pop_back();
  EXPECT_EQ(*std::min_element(lengths.begin(), lengths.end()), 10);
  EXPECT_EQ(*std::max_element(lengths.begin(), lengths.end()), 13);
}

TEST(LengthSource, RefusesWhatItDoesNotKnow) {
  EXPECT_THAT(message_of([] { sample("piel", 100); }),
              HasSubstr("--lengths piel: is unknown; the sources are auto, "));
  EXPECT_THAT(message_of([] { sample("", 100); }), HasSubstr("is unknown"));
  for (const char* name : {"uniform:", "uniform:5", "uniform:0:5", "uniform:7:5", "uniform:5:x",
                           "uniform:1:9:2", "uniform:-3:5", "uniform:1:99999999999"})
    EXPECT_THAT(message_of([&] { sample(name, 100); }), HasSubstr("must be uniform:A:B")) << name;
  EXPECT_THAT(message_of([] { sample("./no/such.csv", 100); }), HasSubstr("cannot be opened"));
  EXPECT_THAT(message_of([] { sample("/", 100); }), HasSubstr("is a folder"));
}

class LengthFileOnDisk : public ::testing::Test {
 protected:
  std::string write(const std::string& text) {
    std::ofstream(path_) << text;
    return path_;
  }
  void TearDown() override { std::remove(path_.c_str()); }
  // Tests run concurrently.
  std::string path_ = ::testing::TempDir() + "longspan_lengths_" +
                      ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".csv";
};

TEST_F(LengthFileOnDisk, ListsAreUsedAsTheyStand) {
  const std::string path = write("# my batch\nlength\n100\n 7 \n\n50\r\n");
  EXPECT_THAT(sample(path, 157), ElementsAre(100, 7, 50));
  EXPECT_THAT(sample(path, 120), ElementsAre(100, 7, 13));
  EXPECT_THAT(sample(path, 100), ElementsAre(100));
  EXPECT_THAT(message_of([&] { sample(path, 158); }), HasSubstr("3 lengths sum to 157 tokens, fewer than"));
}

TEST_F(LengthFileOnDisk, HistogramsAreSampled) {
  const std::string path = write("begin,end,weight\n5,5,1\n9,9,0\n7,7,3\n");
  auto lengths = sample(path, 7000);
  lengths.pop_back();
  const auto fives = std::count(lengths.begin(), lengths.end(), 5),
             sevens = std::count(lengths.begin(), lengths.end(), 7);
  EXPECT_EQ(static_cast<size_t>(fives + sevens), lengths.size());
  EXPECT_NEAR(static_cast<double>(sevens) / static_cast<double>(lengths.size()), 0.75, 0.05);
}

TEST(LengthFile, NamesTheLineThatIsWrong) {
  auto message = [](const std::string& text) {
    return message_of([&] { parse_length_file(text, "f.csv"); });
  };
  EXPECT_THAT(message(""), HasSubstr("f.csv: holds no lengths"));
  EXPECT_THAT(message("# only\n"), HasSubstr("f.csv: holds no lengths"));
  EXPECT_THAT(message("length\n"), HasSubstr("f.csv: holds no lengths"));
  EXPECT_THAT(message("5\n0\n"),
              HasSubstr("f.csv:2: '0' is not a length; a length is a whole number from 1 to"));
  EXPECT_THAT(message("5\n1.5\n"), HasSubstr("f.csv:2: '1.5' is not a length"));
  EXPECT_THAT(message("5\nlength\n"), HasSubstr("f.csv:2: 'length' is not a length"));
  EXPECT_THAT(message("5\n1,2\n"), HasSubstr("f.csv:2: '1,2' has 2 columns; give one length per line"));
  EXPECT_THAT(message("5\n1,2,3\n"), HasSubstr("f.csv:2: '1,2,3' has 3 columns, earlier lines have 1"));
  EXPECT_THAT(message("1,2,3\n\n9,8,1"), HasSubstr("f.csv:3: '9,8,1' is not a bin"));
  EXPECT_THAT(message("1,2,-3"), HasSubstr("f.csv:1: '1,2,-3' has no valid weight"));
  EXPECT_THAT(message("1,2,nan"), HasSubstr("has no valid weight"));
  EXPECT_THAT(message("1,2,inf"), HasSubstr("has no valid weight"));
  EXPECT_THAT(message("1,2,0\n2,3,0\n"), HasSubstr("f.csv: its weights sum to 0"));
  EXPECT_THAT(message("1,2,1e308\n2,3,1e308\n"), HasSubstr("f.csv: its weights sum to inf"));
  EXPECT_THAT(message(std::string("5\n\x01\x02") + std::string(500, 'x')), HasSubstr("'??xxx"));
}

TEST(LengthSource, AListIsUsedInOrder) {
  Mt19937 generator(1);
  EXPECT_EQ(list_of_lengths(std::vector<int64_t>{5, 3, 8}), "list:5:3:8");
  const LengthSource source = LengthSource::from_name("list:5:3:8", 10);
  EXPECT_EQ(source.name(), "list:5:3:8");
  EXPECT_THAT(source.sample(10, generator), ElementsAre(5, 3, 2));
  EXPECT_EQ(source.expected_documents(10), 3);
  EXPECT_THAT(message_of([&] { source.sample(17, generator); }), HasSubstr("sum to 16 tokens"));
  for (const char* bad :
       {"list:", "list:5:", "list::5", "list:0", "list:-1", "list:5:x", "list:5,3", "list:99999999999"})
    EXPECT_THAT(message_of([&] { LengthSource::from_name(bad, 10); }), HasSubstr("--lengths list: length "))
        << bad;
}

TEST(LengthSource, DrawsOneDocument) {
  Mt19937 generator(1), same(1);
  const LengthSource pile = LengthSource::from_name("pile", 1 << 20);
  const std::vector<int64_t> sampled = pile.sample(100000, same);
  for (size_t i = 0; i + 1 < sampled.size(); ++i) EXPECT_EQ(pile.draw(generator), sampled[i]);
  std::vector<int64_t> counts(9);
  const LengthSource list = LengthSource::from_name("list:5:3:8", 10);
  for (int i = 0; i < 3000; ++i) ++counts[static_cast<size_t>(list.draw(generator))];
  EXPECT_EQ(counts[5] + counts[3] + counts[8], 3000);
  for (const size_t length : {5, 3, 8}) EXPECT_GT(counts[length], 850);
}

}  // namespace
}  // namespace longspan
