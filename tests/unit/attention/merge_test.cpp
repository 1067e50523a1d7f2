#include "attention/merge.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "base/error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "rapidcheck.h"

namespace longspan {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr int64_t kDim = 5;

struct Row {
  std::vector<float> o = std::vector<float>(kDim, 0.f);
  float lse = -kInf;
};

struct Keys {
  std::vector<double> scores;
  std::vector<std::vector<double>> values;
};

// Attention over the chosen keys by its definition, in double.
Row attend(const Keys& keys, const std::vector<size_t>& chosen) {
  Row row;
  if (chosen.empty()) return row;
  double top = -kInf, sum = 0;
  for (size_t j : chosen) top = std::max(top, keys.scores[j]);
  std::vector<double> o(kDim, 0);
  for (size_t j : chosen) {
    const double p = std::exp(keys.scores[j] - top);
    sum += p;
    for (int64_t d = 0; d < kDim; ++d) o[d] += p * keys.values[j][d];
  }
  for (int64_t d = 0; d < kDim; ++d) row.o[d] = static_cast<float>(o[d] / sum);
  row.lse = static_cast<float>(top + std::log(sum));
  return row;
}

Keys draw(size_t count, double spread, std::mt19937& generator) {
  std::normal_distribution<double> normal;
  Keys keys;
  for (size_t j = 0; j < count; ++j) {
    keys.scores.push_back(spread * normal(generator));
    keys.values.emplace_back();
    for (int64_t d = 0; d < kDim; ++d) keys.values.back().push_back(normal(generator));
  }
  return keys;
}

// The merged parts equal attention over all keys, however the keys are distributed over parts and in whatever
// order the parts are merged.
TEST(Merge, AnySplitOfKeysGivesTheWhole) {
  EXPECT_TRUE(rc::check([] {
    const auto count = static_cast<size_t>(*rc::gen::inRange(0, 40));
    const auto parts = static_cast<size_t>(*rc::gen::inRange(1, 8));
    const double spread = *rc::gen::element(0.0, 1.0, 10.0, 300.0);
    std::mt19937 generator(*rc::gen::arbitrary<uint32_t>());
    const Keys keys = draw(count, spread, generator);
    std::vector<std::vector<size_t>> dealt(parts);
    std::vector<size_t> all;
    for (size_t j = 0; j < count; ++j) {
      dealt[generator() % parts].push_back(j);
      all.push_back(j);
    }
    Row merged;
    for (const auto& chosen : dealt) {
      const Row part = attend(keys, chosen);
      merge_row(merged.o.data(), merged.lse, part.o.data(), part.lse, kDim);
    }
    const Row whole = attend(keys, all);
    if (count == 0) {
      RC_ASSERT(merged.lse == -kInf);
      RC_ASSERT(merged.o == whole.o);
      return;
    }
    // Each merge adds a few roundings of lse (which scales with it) and of the weights.
    const float tolerance = 1e-6f * static_cast<float>(parts) * std::max(1.f, std::abs(whole.lse));
    RC_ASSERT(std::abs(merged.lse - whole.lse) <= tolerance);
    for (int64_t d = 0; d < kDim; ++d) RC_ASSERT(std::abs(merged.o[d] - whole.o[d]) <= 6 * tolerance);
  }));
}

TEST(Merge, AnEmptyPartChangesNoBit) {
  std::mt19937 generator(3);
  const Keys keys = draw(7, 1, generator);
  const Row row = attend(keys, {0, 1, 2, 3, 4, 5, 6});
  Row into = row;
  const Row empty;
  merge_row(into.o.data(), into.lse, empty.o.data(), empty.lse, kDim);
  EXPECT_EQ(into.o, row.o);
  EXPECT_EQ(into.lse, row.lse);
  into = empty;
  merge_row(into.o.data(), into.lse, row.o.data(), row.lse, kDim);
  EXPECT_EQ(into.o, row.o);
  EXPECT_EQ(into.lse, row.lse);
  into = empty;
  merge_row(into.o.data(), into.lse, empty.o.data(), empty.lse, kDim);
  EXPECT_EQ(into.o, empty.o);
  EXPECT_EQ(into.lse, -kInf);
}

TEST(Merge, FarApartAndLargeValuesStayFinite) {
  for (const auto& [a, b] : {std::pair{1e30f, -1e30f}, {-1e30f, 1e30f}, {3e38f, 3e38f}, {-3e38f, -3e38f}}) {
    Row into, part;
    into.lse = a;
    part.lse = b;
    into.o.assign(kDim, 1.f);
    part.o.assign(kDim, 2.f);
    merge_row(into.o.data(), into.lse, part.o.data(), part.lse, kDim);
    EXPECT_EQ(into.lse, std::max(a, b));
    EXPECT_EQ(into.o[0], a == b ? 1.5f : a > b ? 1.f : 2.f);
  }
}

TEST(Merge, ANanReachesTheResult) {
  for (const bool in_part : {false, true}) {
    Row into, part;
    into.lse = in_part ? 1.f : NAN;
    part.lse = in_part ? NAN : 1.f;
    merge_row(into.o.data(), into.lse, part.o.data(), part.lse, kDim);
    EXPECT_TRUE(std::isnan(into.lse));
    EXPECT_TRUE(std::isnan(into.o[0]));
  }
}

TEST(Merge, TensorsMergeRowByRowWhateverTheirStrides) {
  constexpr int64_t kTokens = 130, kHeads = 3;
  std::mt19937 generator(5);
  std::normal_distribution<float> normal;
  std::vector<float> o(kTokens * kHeads * kDim), lse(kHeads * kTokens);
  std::vector<float> part_o(kTokens * 40), part_lse(kHeads * 200);
  for (auto* values : {&o, &lse, &part_o, &part_lse}) {
    for (float& x : *values) x = normal(generator);
  }
  const auto o_before = o, lse_before = lse;
  PartialResult into{TensorView::contiguous(o.data(), DType::kF32, kTokens, kHeads, kDim), lse.data(),
                     kTokens};
  PartialResult part{TensorView::contiguous(part_o.data(), DType::kF32, kTokens, kHeads, kDim),
                     part_lse.data(), 200};
  part.o.token_stride = 40;
  part.o.head_stride = 11;
  merge(into, part);
  for (int64_t t = 0; t < kTokens; ++t) {
    for (int64_t h = 0; h < kHeads; ++h) {
      Row row;
      std::copy_n(&o_before[(t * kHeads + h) * kDim], kDim, row.o.begin());
      row.lse = lse_before[h * kTokens + t];
      merge_row(row.o.data(), row.lse, part.o.row<float>(t, h), part_lse[h * 200 + t], kDim);
      EXPECT_EQ(lse[h * kTokens + t], row.lse);
      EXPECT_TRUE(std::equal(row.o.begin(), row.o.end(), into.o.row<float>(t, h)));
    }
  }
  part.o.tokens = 129;
  EXPECT_THROW(merge(into, part), Error);
  part.o.tokens = kTokens;
  part.o.dtype = DType::kBF16;
  EXPECT_THROW(merge(into, part), Error);
}

}  // namespace
}  // namespace longspan
