// The cases of `longspan verify` and their outcomes.
#include "bench/case/verify_sweep.h"

#include <filesystem>
#include <fstream>
#include <set>

#include "base/error.h"
#include "bench/spec/mask_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "unit/attention/plain_kernel.h"

namespace longspan {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::ThrowsMessage;
using Status = CaseOutcome::Status;

const std::vector<Device> kCpu = {cpu_device()};

SweepOptions small(const Kernel& kernel) {
  SweepOptions options;
  options.kernels = {&kernel};
  options.masks = {"causal"};
  options.seqlens = {33};
  options.heads = {{2, 1}};
  options.dtypes = {DType::kF32};
  return options;
}

TEST(MaskNames, PartsAreGathered) {
  PatternOptions options;
  options.seqlen = 100;
  const HeadMasks causal = masks_from_name("causal", options);
  const HeadMasks late = masks_from_name("late_keys:causal", options);
  EXPECT_EQ(late[0].rows(), 100);
  EXPECT_EQ(late[0].columns(), 50);
  EXPECT_EQ(late[0].visible_count(49), 0);
  EXPECT_EQ(late[0].visible_count(50), 1);
  const HeadMasks early = masks_from_name("early_rows:causal", options);
  EXPECT_EQ(early[0].rows(), 50);
  EXPECT_EQ(early[0].transposed().visible_count(50), 0);
  const HeadMasks shuffled = masks_from_name("shuffled:full", options);
  EXPECT_EQ(shuffled[0].area(), shuffled[0].rows() * shuffled[0].columns());
  EXPECT_LT(shuffled[0].rows(), 100);
  const HeadMasks empty = masks_from_name("empty", options);
  EXPECT_EQ(empty[0].rows(), 100);
  EXPECT_EQ(empty[0].area(), 0);
  // a part of a part
  EXPECT_EQ(masks_from_name("late_keys:early_rows:causal", options)[0].area(), 0);
  // the shortest sequences
  for (const char* name : {"shuffled:causal", "late_keys:causal", "early_rows:causal", "empty"}) {
    options.seqlen = 1;
    const HeadMasks one = masks_from_name(name, options);
    EXPECT_GE(one[0].rows(), 1) << name;
    EXPECT_GE(one[0].columns(), 1) << name;
  }
}

TEST(MaskNames, WrongNamesAreRefusedWithTheAllowedOnes) {
  EXPECT_THAT([] { check_mask_name("cusal"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("'cusal'"), HasSubstr("causal_document"))));
  EXPECT_THAT([] { check_mask_name("some:causal"); },
              ThrowsMessage<Error>(AllOf(HasSubstr("'some'"), HasSubstr("shuffled, late_keys, early_rows"))));
  EXPECT_THAT([] { check_mask_name("shuffled:cusal"); }, ThrowsMessage<Error>(HasSubstr("'cusal'")));
  EXPECT_THAT([] { check_mask_name("no/such.json"); }, ThrowsMessage<Error>(HasSubstr("no/such.json")));
  EXPECT_NO_THROW(check_mask_name("shuffled:late_keys:full"));
}

TEST(Expand, TheDefaultSweepCoversEverything) {
  const PlainKernel kernel;
  SweepOptions options;
  options.kernels = {&kernel};
  std::set<std::string> masks;
  std::set<int64_t> seqlens, head_dims;
  std::set<DType> dtypes;
  std::set<std::pair<std::string, bool>> grouped;
  bool deterministic = false, fp32_output = false, scaled = false, capped = false, alibi = false,
       own_values = false;
  for (const VerifyCase& c : expand(options)) {
    masks.insert(c.mask);
    seqlens.insert(c.options.seqlen);
    head_dims.insert(c.head_dim);
    dtypes.insert(c.dtype);
    grouped.insert({c.mask, c.heads.q > c.heads.kv});
    deterministic |= c.deterministic;
    fp32_output |= c.fp32_output;
    scaled |= c.scale != 0;
    capped |= c.softcap != 0;
    alibi |= c.alibi;
    own_values |= c.head_dim_v != 0;
    EXPECT_TRUE(c.forward && c.backward);
    EXPECT_NO_THROW(masks_from_name(c.mask, c.options)) << c.mask << " " << c.options.seqlen;
  }
  for (const Pattern& pattern : patterns()) EXPECT_TRUE(masks.contains(std::string(pattern.name)));
  EXPECT_THAT(masks, testing::IsSupersetOf({"empty", "shuffled:causal", "shuffled:uniform_block_sparse",
                                            "late_keys:causal_document", "early_rows:causal"}));
  EXPECT_THAT(seqlens, testing::ElementsAre(1, 2, 63, 64, 65, 127, 129, 1000, 4097));
  EXPECT_GE(head_dims.size(), 6u);
  EXPECT_EQ(dtypes.size(), 3u);
  EXPECT_EQ(grouped.size(), 2 * masks.size());
  EXPECT_TRUE(deterministic && fp32_output && scaled && capped && alibi && own_values);
}

TEST(Expand, RequestedValuesAreNotChanged) {
  const PlainKernel kernel;
  SweepOptions options = small(kernel);
  options.seqlens = {33, 5000};
  options.heads = {{2, 1}, {3, 3}};
  options.dtypes = {DType::kF32, DType::kBF16};
  options.head_dim = 32;
  options.scale = 0.5f;
  const auto cases = expand(options);
  EXPECT_EQ(cases.size(), 8u);
  for (const VerifyCase& c : cases) {
    EXPECT_EQ(c.head_dim, 32);
    EXPECT_EQ(c.scale, 0.5f);
    EXPECT_FALSE(c.adapt);
    EXPECT_TRUE(c.counting);
  }
}

TEST(Expand, OneWindowSizeSetsBothSides) {
  const PlainKernel kernel;
  SweepOptions options = small(kernel);
  options.masks = {"sliding_window", "sliding_window_causal", "shuffled:sliding_window"};
  options.pattern.values.set("window", TokenPair{5, {}});
  for (const VerifyCase& c : expand(options)) {
    PatternOptions both = c.options;
    both.values.set("window", TokenPair{5, c.mask == "sliding_window_causal" ? 0 : 5});
    EXPECT_EQ(masks_from_name(c.mask, c.options), masks_from_name(c.mask, both)) << c.mask;
  }
}

TEST(RunCase, EachDirectionHasItsOutcome) {
  const PlainKernel right;
  auto outcomes = run_case(expand(small(right)).at(0), kCpu);
  ASSERT_EQ(outcomes.size(), 2u);
  EXPECT_EQ(outcomes[0].direction, Direction::kForward);
  EXPECT_EQ(outcomes[1].direction, Direction::kBackward);
  for (const CaseOutcome& outcome : outcomes) EXPECT_EQ(outcome.status, Status::kPassed) << outcome.reason;

  const PlainKernel wrong_gradient({.fault = Fault::kNoDelta});
  outcomes = run_case(expand(small(wrong_gradient)).at(0), kCpu);
  EXPECT_EQ(outcomes.at(0).status, Status::kPassed);
  EXPECT_EQ(outcomes.at(1).status, Status::kFailed);
  EXPECT_THAT(outcomes.at(1).reason, HasSubstr("dq"));

  const PlainKernel wrong({.fault = Fault::kWrongScale});
  SweepOptions forward = small(wrong);
  forward.backward = false;
  outcomes = run_case(expand(forward).at(0), kCpu);
  ASSERT_EQ(outcomes.size(), 1u);
  EXPECT_EQ(outcomes[0].status, Status::kFailed);
}

TEST(RunCase, UnsupportedCasesAreSkippedWithTheReason) {
  const PlainKernel forward_only({.forward_only = true});
  auto outcomes = run_case(expand(small(forward_only)).at(0), kCpu);
  EXPECT_EQ(outcomes.at(0).status, Status::kPassed);
  EXPECT_EQ(outcomes.at(1).status, Status::kSkipped);
  EXPECT_EQ(outcomes.at(1).reason, "has no backward pass");

  const PlainKernel kernel;
  SweepOptions wide = small(kernel);
  wide.head_dim = 128;
  outcomes = run_case(expand(wide).at(0), kCpu);
  EXPECT_EQ(outcomes.at(0).status, Status::kSkipped);
  EXPECT_EQ(outcomes.at(0).reason, "needs head_dim up to 64");

  // A default head_dim is replaced by one that the kernel supports.
  SweepOptions varied = small(kernel);
  varied.seqlens = {64};  // whose default is 128
  outcomes = run_case(expand(varied).at(0), kCpu);
  EXPECT_EQ(outcomes.at(0).status, Status::kPassed);
  EXPECT_EQ(outcomes.at(0).verified.head_dim, 64);

  outcomes = run_case(expand(small(kernel)).at(0), {});
  EXPECT_EQ(outcomes.at(0).status, Status::kSkipped);
  EXPECT_EQ(outcomes.at(0).reason, "needs the CPU, which is not among the devices");

  SweepOptions odd = small(kernel);
  odd.masks = {"block_causal_document"};
  odd.head_dim = 16;
  outcomes = run_case(expand(odd).at(0), kCpu);
  EXPECT_EQ(outcomes.at(0).status, Status::kSkipped);
  EXPECT_THAT(outcomes.at(0).reason, HasSubstr("multiple of the block"));
}

TEST(RunCase, AKernelThatThrowsFails) {
  const PlainKernel kernel({.fault = Fault::kThrows});
  const auto outcomes = run_case(expand(small(kernel)).at(0), kCpu);
  ASSERT_EQ(outcomes.size(), 2u);
  EXPECT_EQ(outcomes[0].status, Status::kFailed);
  EXPECT_THAT(outcomes[0].reason, HasSubstr("the kernel gave up"));
  EXPECT_EQ(outcomes[1].status, Status::kFailed);
}

TEST(RunCase, MasksOfAFileHaveTheirOwnShape) {
  const auto path = std::filesystem::temp_directory_path() / "longspan_verify_sweep_test.json";
  {
    std::ofstream file(path);
    const Mask a(40, 40, {Band{{0, 40}, {0, 40}, -3, 0}}), b(40, 40, {Band{{5, 40}, {0, 9}}});
    write_masks({a, b}, file);
  }
  const PlainKernel kernel;
  SweepOptions options = small(kernel);
  options.masks = {path.string()};
  options.heads.clear();
  const auto cases = expand(options);
  EXPECT_EQ(cases.size(), 2u);  // multi-head and grouped; one length: the file's
  for (const VerifyCase& c : cases) {
    EXPECT_EQ(c.heads.kv, 2);
    EXPECT_THAT(command_of(c, Direction::kForward), testing::Not(HasSubstr("--seqlen")));
    for (const CaseOutcome& outcome : run_case(c, kCpu))
      EXPECT_EQ(outcome.status, Status::kPassed) << outcome.reason;
  }
  std::filesystem::remove(path);
}

TEST(Command, NamesEverythingThatIsNotTheDefault) {
  const PlainKernel kernel;
  VerifyCase c;
  c.kernel = &kernel;
  c.mask = "variable_block_sparse";
  c.options.seqlen = 8192;
  c.options.seed = 7;
  c.options.values.set("block", 64);
  c.options.values.set("block_min", 16);
  c.options.values.set("density", 0.25);
  c.heads = {8, 2};
  c.head_dim = 128;
  c.dtype = DType::kBF16;
  EXPECT_EQ(
      command_of(c, Direction::kBackward),
      "longspan verify --kernel plain --mask variable_block_sparse --seqlen 8K --heads 8:2 --head-dim 128 "
      "--dtype bf16 --direction backward --seed 7 --block 64 --block-min 16 --density 0.25");
  c.mask = "sliding_window";
  c.options = {};
  c.options.seqlen = 65;
  c.options.values.set("window", TokenPair{3, 4});
  c.scale = 0.3f;
  c.softcap = 20;
  c.alibi = true;
  c.head_dim_v = 64;
  c.deterministic = c.fp32_output = true;
  EXPECT_EQ(command_of(c, Direction::kForward),
            "longspan verify --kernel plain --mask sliding_window --seqlen 65 --heads 8:2 --head-dim 128 "
            "--dtype bf16 "
            "--direction forward --seed 42 --head-dim-v 64 --scale 0.3 --softcap 20 --alibi --deterministic "
            "--fp32-output --window 3,4");
}

TEST(Sweep, CountsOutcomesAndGroupsReasons) {
  const PlainKernel right, wrong({.fault = Fault::kKeyMissing, .head = 1, .row = 20}),
      forward_only({.forward_only = true});
  SweepOptions options = small(right);
  options.kernels = {&right, &wrong, &forward_only};
  options.head_dim = 8;
  options.masks = {"causal", "full"};
  std::vector<std::string> failures;
  const SweepSummary summary = sweep(expand(options), kCpu, [&](const CaseOutcome& outcome) {
    if (outcome.status == Status::kFailed) failures.push_back(outcome.reason);
  });
  EXPECT_EQ(summary.passed, 4 + 2);
  EXPECT_EQ(summary.failed, 4);
  EXPECT_EQ(summary.skipped, 2);
  EXPECT_THAT(summary.skip_reasons, testing::ElementsAre(testing::Pair("plain: has no backward pass", 2)));
  ASSERT_EQ(failures.size(), 4u);
  EXPECT_THAT(failures[0], HasSubstr("head 1, row 20"));
}

}  // namespace
}  // namespace longspan
