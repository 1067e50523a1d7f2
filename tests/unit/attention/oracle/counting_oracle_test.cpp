// The counting oracle on its own detects every mask error, in any row, key and head.
#include "attention/oracle/counting_oracle.h"

#include <cmath>
#include <string>

#include "attention/oracle/slot_sums.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "mask/patterns/patterns.h"
#include "unit/attention/plain_kernel.h"

namespace longspan {
namespace {

using testing::HasSubstr;

std::shared_ptr<const HeadMasks> documents(int64_t n) {
  PatternOptions options;
  options.seqlen = n;
  options.lengths = "uniform:1:90";
  return std::make_shared<HeadMasks>(draw_mask("causal_document", options).masks);
}

// Two separate blocks of rows and keys; 7 rows without keys, 5 keys without rows.
std::shared_ptr<const HeadMasks> different(int64_t n) {
  return std::make_shared<HeadMasks>(
      HeadMasks{Mask(n, n, {Band{{7, n}, {0, n - 5}, -30, 12}}),
                Mask(n, n, {Band{{7, n / 2}, {0, n / 3}}, Band{{n / 2, n}, {n / 2, n - 5}}})});
}

Problem make_problem(std::shared_ptr<const HeadMasks> masks, DType dtype) {
  Problem problem;
  problem.tokens_q = masks->front().rows();
  problem.tokens_kv = masks->front().columns();
  problem.heads_q = 4;
  problem.heads_kv = 2;
  problem.head_dim = 24;
  problem.dtype = dtype;
  problem.masks = std::move(masks);
  return problem;
}

struct Counts {
  std::string forward, backward;
};

Counts count(const PlainOptions& kernel, const Problem& problem) {
  const auto plan = PlainKernel(kernel).plan(problem, cpu_device());
  ProblemTensors tensors(problem, Direction::kBackward, cpu_device(), *plan);
  return {counting_forward(*plan, problem, tensors), counting_backward(*plan, problem, tensors)};
}

TEST(CountingOracle, RightKernelsPass) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const auto& masks : {documents(300), different(300)}) {
      const Counts counts = count({}, make_problem(masks, dtype));
      EXPECT_EQ(counts.forward, "") << name_of(dtype);
      EXPECT_EQ(counts.backward, "") << name_of(dtype);
    }
  }
}

TEST(CountingOracle, CatchesEachMaskError) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const auto& masks : {documents(300), different(300)}) {
      const Problem problem = make_problem(masks, dtype);
      for (const Fault fault :
           {Fault::kKeyMissing, Fault::kKeyTooMany, Fault::kRowShifted, Fault::kTileDropped}) {
        const int64_t row = 201, key = masks->front().visible_keys(row).front().begin;
        const Counts counts = count({.fault = fault, .head = 1, .row = row, .key = key}, problem);
        EXPECT_THAT(counts.forward, HasSubstr("counting: head 1, row ")) << static_cast<int>(fault);
        EXPECT_THAT(counts.backward, HasSubstr("counting: KV head 0, key ")) << static_cast<int>(fault);
      }
      const Counts ignored = count({.fault = Fault::kMaskIgnored}, problem);
      EXPECT_THAT(ignored.forward, HasSubstr("keys, but its lse with q = 0"));
    }
  }
}

// The row sees as many keys as it should, but other ones: lse is right, and only o shows the error.
TEST(CountingOracle, CatchesTheRightNumberOfWrongKeys) {
  const Problem problem = make_problem(different(300), DType::kF32);
  const Counts counts = count({.fault = Fault::kRowShifted, .head = 0, .row = 100}, problem);
  EXPECT_THAT(counts.forward, HasSubstr("counting: head 0, row 100 sees"));
  EXPECT_THAT(counts.forward, HasSubstr("of them in slot"));
}

TEST(CountingOracle, CatchesSwappedHeads) {
  EXPECT_NE(count({.fault = Fault::kSwappedHead}, make_problem(documents(300), DType::kBF16)).forward, "");
  EXPECT_NE(count({.fault = Fault::kHeadMaskSwapped}, make_problem(different(300), DType::kBF16)).forward,
            "");
  EXPECT_NE(count({.fault = Fault::kDkSwappedHead}, make_problem(documents(300), DType::kBF16)).backward, "");
}

TEST(CountingOracle, CatchesEachGradientError) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const auto& masks : {documents(200), different(200)}) {
      const Problem problem = make_problem(masks, dtype);
      for (const Fault fault : {Fault::kDqKeyMissing, Fault::kDkRowMissing, Fault::kDvRowMissing,
                                Fault::kNoDelta, Fault::kDkUnscaled, Fault::kGroupNotSummed, Fault::kNanInDk,
                                Fault::kUnwrittenDv, Fault::kUnwrittenDq}) {
        const Counts counts = count({.fault = fault, .head = 0, .row = 150, .key = 140}, problem);
        EXPECT_EQ(counts.forward, "") << static_cast<int>(fault);
        EXPECT_NE(counts.backward, "") << static_cast<int>(fault);
      }
    }
  }
}

TEST(CountingOracle, RowsAndKeysWithoutPairsMustBeZero) {
  const Problem problem = make_problem(different(200), DType::kF32);
  EXPECT_THAT(count({.fault = Fault::kEmptyRowLseZero}, problem).forward, HasSubstr("row 0 sees 0 keys"));
  EXPECT_THAT(count({.fault = Fault::kEmptyRowNotZero}, problem).forward, HasSubstr("row 0 sees 0 keys"));
  EXPECT_THAT(count({.fault = Fault::kUnseenKeyNotZero, .key = 199}, problem).backward,
              Not(testing::IsEmpty()));
}

TEST(SlotSums, AreTheSumsOverTheRange) {
  constexpr int64_t kTokens = 333, kSlots = 7;
  const auto slot = [](int64_t t, int kind) { return slot_of(t, 3, kind, kSlots); };
  const auto weight = [](int64_t t) { return 1.0 / static_cast<double>(t + 1); };
  const SlotSums sums(kTokens, kSlots, slot, weight);
  for (const Range range : {Range{0, 333}, {0, 0}, {5, 6}, {60, 70}, {64, 128}, {100, 300}, {332, 333}}) {
    std::vector<double> got(kSlots, 0), want(kSlots, 0);
    sums.add(range, got.data());
    for (int64_t t = range.begin; t < range.end; ++t) {
      for (int kind = 0; kind < kSlotKinds; ++kind) want[slot(t, kind)] += weight(t);
    }
    for (int64_t s = 0; s < kSlots; ++s) EXPECT_NEAR(got[s], want[s], 1e-12);
  }
}

TEST(SlotSums, RowsThatSeeWhatTheRowBeforeSawAreKnown) {
  for (const auto& masks : {documents(300), different(300)}) {
    for (const Mask& mask : *masks) {
      const std::vector<char> change = changes(mask);
      for (int64_t i = 1; i < mask.rows(); ++i) {
        if (!change[i]) EXPECT_EQ(mask.visible_keys(i), mask.visible_keys(i - 1)) << i;
      }
    }
  }
  // A block mask changes at its blocks only.
  const Mask blocks(100, 100, {Band{{0, 50}, {0, 30}}, Band{{50, 100}, {20, 90}}});
  const std::vector<char> change = changes(blocks);
  EXPECT_EQ(std::count(change.begin(), change.end() - 1, 1), 2);
}

// The smallest f16 numbers are multiples of 2^-24. A gradient of 180.5 of them may be stored as 180, and is
// compared after division by the scale with which it was stored.
TEST(Allowance, CountsTheRoundingOfWhatIsStored) {
  const double scale = 1 / std::sqrt(128.0), want = 180.5 * 0x1p-24, got = 180 * 0x1p-24;
  EXPECT_TRUE(Allowance(DType::kF16, 2, 0, scale).allows(got / scale, want / scale, 0));
  EXPECT_FALSE(Allowance(DType::kF16, 2, 0, scale).allows((got - 0x1p-24) / scale, want / scale, 0));
  EXPECT_FALSE(Allowance(DType::kBF16, 2, 0, scale).allows(got / scale, want / scale, 0));
}

}  // namespace
}  // namespace longspan
