// Wrong problems, masks, devices, patterns and buffers: each is an Error that names what is wrong.
#include <cmath>
#include <limits>

#include "longspan/mask.h"
#include "longspan/parallel.h"
#include "unit/api/misuse.h"

namespace longspan {
namespace {

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

struct Wrong {
  std::vector<std::string> parts;  // of the message
  std::function<void(Problem&)> change;
};

std::vector<Wrong> wrong_problems() {
  return {
      {{"tokens_q is 0", "at least 1"}, [](Problem& p) { p.tokens_q = 0; }},
      {{"tokens_q is -3"}, [](Problem& p) { p.tokens_q = -3; }},
      {{"tokens_kv is -1"}, [](Problem& p) { p.tokens_kv = -1; }},
      {{"heads_q is 0"}, [](Problem& p) { p.heads_q = 0; }},
      {{"heads_kv is 0"}, [](Problem& p) { p.heads_kv = 0; }},
      {{"heads_q is 4", "multiple of heads_kv, 3"}, [](Problem& p) { p.heads_kv = 3; }},
      {{"heads_q is 4", "multiple of heads_kv, 8"}, [](Problem& p) { p.heads_kv = 8; }},
      {{"head_dim is -16"}, [](Problem& p) { p.head_dim = -16; }},
      {{"head_dim", "2^50"}, [](Problem& p) { p.head_dim = kLargest; }},
      {{"heads", "2^50"}, [](Problem& p) { p.heads_q = p.heads_kv = kLargest / 2; }},
      {{"tokens", "2147483647"}, [](Problem& p) { p.tokens_q = kLargest; }},
      {{"dtype is f64"}, [](Problem& p) { p.dtype = DType::kF64; }},
      {{"dtype", "77"}, [](Problem& p) { p.dtype = static_cast<DType>(77); }},
      {{"scale is nan", "finite"}, [](Problem& p) { p.scale = std::nanf(""); }},
      {{"scale is -inf"}, [](Problem& p) { p.scale = -std::numeric_limits<float>::infinity(); }},
      {{"there is no mask"}, [](Problem& p) { p.masks = nullptr; }},
      {{"there is no mask"}, [](Problem& p) { p.masks = std::make_shared<HeadMasks>(); }},
      {{"3 masks", "per KV head (2)"},
       [](Problem& p) { p.masks = std::make_shared<HeadMasks>(3, p.masks->front()); }},
      {{"mask 0 has 47 rows", "tokens_q = 48"},
       [](Problem& p) { p.set_mask(Mask(47, 40, std::vector<Band>{})); }},
      {{"mask 0 has 0 rows"}, [](Problem& p) { p.set_mask(Mask()); }},
      {{"visible pairs", "2^63"},
       [](Problem& p) {
         p.tokens_q = p.tokens_kv = kMaxTokens;
         p.set_mask(Mask::window(kMaxTokens));
       }},
  };
}

TEST(ProblemMisuse, EveryEntryRefusesAWrongProblem) {
  for (const Wrong& wrong : wrong_problems()) {
    Problem problem = small_problem();
    wrong.change(problem);
    expect_input_error(wrong.parts, [&] { problem.check(); });
    expect_input_error(wrong.parts, [&] { make_plan(problem, cpu_device()); });
    for (const std::string& kernel : kernel_names()) {
      expect_input_error(wrong.parts,
                         [&] { make_plan(problem, cpu_device(), Direction::kBackward, kernel); });
      expect_input_error(wrong.parts, [&] {
        static_cast<void>(unsupported_reason(kernel, problem, Direction::kForward, cpu_device()));
      });
    }
    expect_input_error(wrong.parts,
                       [&] { ParallelAttention(problem, {}, Group::threads(1).front(), cpu_device()); });
  }
}

// The accessors divide by heads and index masks.
TEST(ProblemMisuse, AccessorsOfAWrongProblemThrow) {
  const Problem empty;
  expect_input_error({"heads_kv is 0"}, [&] { static_cast<void>(empty.group_size()); });
  expect_input_error({"heads_kv is 0"}, [&] { static_cast<void>(empty.kv_head_of(0)); });
  expect_input_error({"there is no mask"}, [&] { static_cast<void>(empty.mask_of_kv_head(0)); });
  expect_input_error({"there is no mask"}, [&] { static_cast<void>(empty.area()); });
  expect_input_error({"there is no mask"}, [&] { static_cast<void>(flops(empty, Direction::kForward)); });
  Problem problem = small_problem();
  problem.masks = std::make_shared<HeadMasks>(2, problem.masks->front());
  expect_input_error({"KV head 2"}, [&] { static_cast<void>(problem.mask_of_kv_head(2)); });
  expect_input_error({"KV head -1"}, [&] { static_cast<void>(problem.mask_of_kv_head(-1)); });
  expect_input_error({"KV head 2"}, [&] { static_cast<void>(problem.mask_of_query_head(4)); });
}

TEST(ProblemMisuse, WrongNamesDirectionsAndDevices) {
  const Problem problem = small_problem();
  expect_input_error({"'no-such'"},
                     [&] { make_plan(problem, cpu_device(), Direction::kBackward, "no-such"); });
  expect_input_error({"direction is 9"},
                     [&] { make_plan(problem, cpu_device(), static_cast<Direction>(9)); });
  expect_input_error({"'sideways'"}, [&] { direction_from_name("sideways"); });
  expect_input_error({"'f8'"}, [&] { dtype_from_name("f8"); });
  for (const std::string& kernel : kernel_names()) {
    Device other;
    other.kind = DeviceKind::kCuda;
    if (unsupported_reason(kernel, problem, Direction::kForward, cpu_device()).empty())
      expect_error(ErrorKind::kUnsupported, {kernel, "CPU"},
                   [&] { make_plan(problem, other, Direction::kBackward, kernel); });
  }
  Problem wide = problem;  // more scores than memory, on a device of unknown memory
  wide.tokens_q = wide.tokens_kv = kMaxTokens;
  wide.heads_q = wide.heads_kv = 1;
  wide.set_mask(Mask::window(kMaxTokens, 0, 0));
  expect_error(ErrorKind::kUnsupported, {"cpu-naive", "scores"},
               [&] { make_plan(wide, Device{}, Direction::kForward, "cpu-naive"); });
}

TEST(ProblemMisuse, Buffers) {
  expect_error(ErrorKind::kOutOfMemory, {"out of memory"},
               [] { Buffer(std::numeric_limits<size_t>::max(), cpu_device()); });
  expect_error(ErrorKind::kOutOfMemory, {"out of memory"}, [] { Buffer(size_t{1} << 60, cpu_device()); });
  Buffer first(100, cpu_device());
  const Buffer second(std::move(first));
  EXPECT_EQ(first.data(), nullptr);  // NOLINT(bugprone-use-after-move): that is the test
  EXPECT_EQ(first.bytes(), 0u);
  first.reset();
}

TEST(MaskMisuse, WrongSizesBandsAndRanges) {
  expect_input_error({"-1 rows"}, [] { Mask(-1, 3, std::vector<Band>{}); });
  expect_input_error({"columns", "2147483647"}, [] { Mask(3, kLargest, std::vector<Band>{}); });
  expect_input_error({"overlap"}, [] { Mask(4, 4, {Band{{0, 4}, {0, 4}}, Band{{3, 4}, {0, 1}}}); });
  expect_input_error({"begin before they end"}, [] { Mask(4, 4, {Band{{3, 1}, {0, 4}}}); });
  expect_input_error({"lo must not be above hi"}, [] { Mask(4, 4, {Band{{0, 4}, {0, 4}, 2, 1}}); });
  expect_input_error({"-2 tokens"}, [] { Mask::window(-2); });
  expect_input_error({"left"}, [] { Mask::window(4, -1); });
  expect_input_error({"document"}, [] {
    const int64_t lengths[] = {kMaxTokens, 1};
    Mask::documents(lengths);
  });
  const Mask mask = Mask::window(8);
  expect_input_error({"row 8"}, [&] { static_cast<void>(mask.visible_count(8)); });
  expect_input_error({"row -1"}, [&] { static_cast<void>(mask.visible_keys(-1)); });
  expect_input_error({"row 9"}, [&] { static_cast<void>(mask.visible(9, 0)); });
  expect_input_error({"column 8"}, [&] { static_cast<void>(mask.visible(0, 8)); });
  expect_input_error({"row 0"}, [] { static_cast<void>(Mask().visible_count(0)); });
  const std::vector<Range> all = {{0, 8}}, beyond = {{4, 9}}, twice = {{0, 4}, {3, 8}}, backwards = {{5, 2}};
  for (const auto& wrong : {beyond, twice, backwards}) {
    expect_input_error({"gather"}, [&] { static_cast<void>(mask.gather(wrong, all)); });
    expect_input_error({"gather"}, [&] { static_cast<void>(mask.gather(all, wrong)); });
  }
}

// Bounds at the ends of int64 must not overflow.
TEST(MaskMisuse, ExtremeBoundsAreClipped) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  const Mask mask(8, 8, {Band{{kLeast, kLargest}, {kLeast, kLargest}, kLeast + 1, kLargest - 1}});
  EXPECT_EQ(mask.area(), 64);
  EXPECT_EQ(Mask::window(8, kLargest - 1, kLargest - 1).area(), 64);
}

TEST(MaskMisuse, AMaskThatWasMovedFromIsStillItself) {
  Mask mask = Mask::window(8, kUnboundedAbove, 0);
  const Mask other(std::move(mask));
  EXPECT_EQ(mask.visible_counts(), other.visible_counts());  // NOLINT(bugprone-use-after-move)
  Problem problem = small_problem();
  problem.tokens_q = problem.tokens_kv = 8;
  problem.set_mask(std::move(mask));
  EXPECT_EQ(mask, other);  // NOLINT(bugprone-use-after-move)
}

TEST(PatternMisuse, WrongNamesLengthsAndOptions) {
  expect_input_error({"'no-such'"}, [] { pattern_masks("no-such", 64); });
  for (const std::string& pattern : pattern_names()) {
    for (const int64_t seqlen : {int64_t{0}, int64_t{-5}, kLargest, std::numeric_limits<int64_t>::min()})
      expect_input_error({}, [&] { pattern_masks(pattern, seqlen); });
    for (const char* name : {"no-such", "", "--seed"})
      expect_input_error({"does not apply"}, [&] { pattern_masks(pattern, 64, {{name, "1"}}); });
    for (const char* value : {"", "x", "-1", "99999999999999999999", "1e999", "\n"}) {
      expect_input_error({"seed"}, [&] { pattern_masks(pattern, 64, {{"seed", value}}); });
      expect_input_error({"index"}, [&] { pattern_masks(pattern, 64, {{"index", value}}); });
    }
  }
}

}  // namespace
}  // namespace longspan
