// Single cases: the steps, the verification, and the outcome.
#include "bench/case/case_runner.h"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/case/verify_case.h"
#include "bench/measure/cpu_testbed.h"
#include "kernels/cpu/naive.h"
#include "record/json_writer.h"
#include "unit/bench/measure/fake_time.h"
#include "unit/bench/run/test_kernels.h"

namespace longspan::bench {
namespace {

using record::Json;
using testing::ElementsAre;
using testing::HasSubstr;

// A CPU with a scripted clock.
class FakeTestbed : public Testbed {
 public:
  const Device& device() const override { return device_; }
  size_t available_bytes() const override { return available; }
  void begin_peak() override { ++windows; }
  size_t end_peak() override { return peak; }
  Clock& clock() override { return clock_; }
  std::unique_ptr<Stopwatch> stopwatch(std::vector<MemorySpan> touched, bool cold_cache) override {
    touched_bytes = 0;
    for (const MemorySpan& span : touched) touched_bytes += span.bytes;
    cold = cold_cache;
    return std::make_unique<FakeStopwatch>(clock_, std::vector<Sample>{{9}, {2}, {4}});
  }
  void advance(double seconds) { clock_.advance(seconds); }
  std::optional<DeviceState> take_device_state() override {
    return DeviceState{1000, 1500, 1980, 600, 55, {"power"}};
  }
  Ceiling measure_ceiling(DType) override { return {}; }

  size_t available = size_t{1} << 30, peak = 12345, touched_bytes = 0;
  int windows = 0;
  bool cold = false;

 private:
  Device device_ = cpu_device();
  FakeClock clock_;
};

Case small_case(Direction direction) {
  Case c;
  c.kernel = "good";
  c.mask = "causal";
  c.seqlen = 16;
  c.heads_q = 2;
  c.heads_kv = 1;
  c.head_dim = 8;
  c.direction = direction;
  return c;
}

TimingRule small_rule() {
  TimingRule rule;
  rule.warmup_s = 0;
  rule.max_samples = 7;
  rule.budget_s = 1e6;
  return rule;
}

Accuracy passing_accuracy() {
  Accuracy accuracy;
  accuracy.checked = {"o"};
  accuracy.max_error = {{"o", 1e-7}};
  accuracy.tolerance = {{"o", 1e-5}};
  accuracy.counting = "pass";
  accuracy.rows = 3;
  accuracy.columns = 4;
  return accuracy;
}

Verify passing() {
  return [](const Subject&) { return passing_accuracy(); };
}

// Runs a case and returns its outcome in the form of a results file.
Json json_of_case(const Case& c, const TimingRule& rule, const Kernel& kernel, Testbed& testbed,
                  const Verify& verify, const Phase& phase) {
  return record::encode(run_case(c, rule, kernel, testbed, verify, phase).outcome);
}

TEST(CaseRunner, ReportsItsMeasurements) {
  FakeTestbed testbed;
  std::vector<std::string> phases;
  const Json json = json_of_case(small_case(Direction::kForward), small_rule(), test_kernel("good"), testbed,
                                 passing(), [&](const std::string& phase) { phases.push_back(phase); });
  EXPECT_EQ(json["status"], "ok") << json;
  EXPECT_THAT(phases, ElementsAre("drawing", "making inputs", "planning", "the first run", "verifying",
                                  "timing", "verifying what was timed"));
  EXPECT_EQ(json["time_s"], 4);
  EXPECT_EQ(json["measurements"][0]["samples_s"], (Json{2, 4, 4, 4, 4, 4, 4}));
  EXPECT_EQ(json["measurements"][0]["converged"], false);  // fewer than min_samples
  EXPECT_EQ(json["interval_s"], (Json{2, 4}));
  EXPECT_EQ(json["area"], 2 * 136);
  EXPECT_EQ(json["flops_per_s"], 4.0 * 2 * 136 * 8 / 4);
  EXPECT_EQ(json["accuracy"]["rows"], 3);
  EXPECT_EQ(json["device_state"]["sm_clock_mhz"], (Json{1000, 1500, 1980}));
  EXPECT_GE(json["peak_bytes"], 12345);
  const auto inputs_and_outputs = json["total_bytes"].get<int64_t>() - json["peak_bytes"].get<int64_t>();
  EXPECT_EQ(inputs_and_outputs, 2 * (2 * 16 * 8 * 4) + 2 * (16 * 8 * 4) + 2 * 16 * 4) << "q, o, k, v, lse";
  EXPECT_TRUE(testbed.cold);
}

// The first plan of a process takes longer than the others.
class SlowAtFirst final : public Kernel {
 public:
  explicit SlowAtFirst(FakeTestbed& testbed) : testbed_(testbed) {}
  std::string_view name() const override { return good_.name(); }
  std::string_view description() const override { return good_.description(); }
  DeviceKind device_kind() const override { return good_.device_kind(); }
  Support supports(const Problem& problem, Direction direction, const Device& device) const override {
    return good_.supports(problem, direction, device);
  }
  std::unique_ptr<Plan> plan(const Problem& problem, const Device& device) const override {
    testbed_.advance(plans++ == 0 ? 1000 : 2);
    return good_.plan(problem, device);
  }

  mutable int plans = 0;

 private:
  FakeTestbed& testbed_;
  const Kernel& good_ = test_kernel("good");
};

TEST(CaseRunner, LeavesTheFirstPlanOut) {
  FakeTestbed testbed;
  for (const auto& [budget_s, plans] : {std::pair{1.0, 2}, std::pair{1e6, 6}}) {
    const SlowAtFirst kernel(testbed);
    TimingRule rule = small_rule();
    rule.budget_s = budget_s;
    const Json json = json_of_case(small_case(Direction::kForward), rule, kernel, testbed, passing(),
                                   [](const std::string&) {});
    EXPECT_EQ(json["plan_s"], 2) << json;
    EXPECT_EQ(kernel.plans, plans);
  }
}

TEST(CaseRunner, EvictsAllTensorsAndTheWorkspace) {
  FakeTestbed testbed;
  for (Direction direction : {Direction::kForward, Direction::kBackward}) {
    json_of_case(small_case(direction), small_rule(), test_kernel("good"), testbed, passing(),
                 [](const std::string&) {});
    const size_t q = 16 * 2 * 8 * 4, kv = 16 * 1 * 8 * 4, lse = 16 * 2 * 4;
    const size_t forward = q + 2 * kv + q + lse;
    EXPECT_EQ(testbed.touched_bytes,
              256 + (direction == Direction::kForward ? forward : forward + 2 * q + 2 * kv));
  }
}

TEST(CaseRunner, VerifiesTheOutputs) {
  FakeTestbed testbed;
  const Verify looks = [](const Subject& subject) {
    Accuracy accuracy;
    if (subject.tensors.o.row<float>(0, 0)[0] != subject.tensors.v.row<float>(0, 0)[0])
      accuracy.failure = "o differs";
    if (subject.direction == Direction::kBackward && std::isnan(subject.tensors.dk.row<float>(0, 0)[0])) {
      accuracy.failure = "dk was not written";
    }
    return accuracy;
  };
  for (Direction direction : {Direction::kForward, Direction::kBackward}) {
    // Row 0 of a causal mask sees only key 0, so its output is v's first row.
    EXPECT_EQ(json_of_case(small_case(direction), small_rule(), test_kernel("good"), testbed, looks,
                           [](const std::string&) {})["status"],
              "ok");
    const Json wrong = json_of_case(small_case(direction), small_rule(), test_kernel("wrong"), testbed, looks,
                                    [](const std::string&) {});
    EXPECT_EQ(wrong["status"], "failed");
    EXPECT_EQ(wrong["reason"], "wrong result: o differs");
    EXPECT_FALSE(wrong.contains("time_s"));
    EXPECT_FALSE(wrong.contains("measurements"));
  }
}

// Only the first three of many masks are compared with the fp64 oracle. A counting failure in a later one
// fails the case as well.
TEST(CaseRunner, CountsEveryMaskAndComparesTheFirst) {
  FakeTestbed testbed;
  Case c = small_case(Direction::kForward);
  c.masks = 5;
  std::vector<bool> alone;
  int broken = -1;
  const Verify notes = [&](const Subject& subject) {
    alone.push_back(subject.count_alone);
    Accuracy accuracy;
    accuracy.counting = "pass";
    if (!subject.count_alone) accuracy = passing_accuracy();
    if (static_cast<int>(alone.size()) - 1 == broken) accuracy.failure = "a key is missing";
    return accuracy;
  };
  const auto run = [&] {
    alone.clear();
    return json_of_case(c, small_rule(), test_kernel("good"), testbed, notes, [](const std::string&) {});
  };
  const Json json = run();
  EXPECT_THAT(alone, ElementsAre(false, false, false, true, true));
  EXPECT_EQ(json["status"], "ok");
  EXPECT_EQ(json["accuracy"]["masks"], 3);
  EXPECT_EQ(json["accuracy"]["counting"], "pass");
  EXPECT_EQ(json["accuracy"]["checked"], Json{"o"});
  EXPECT_EQ(json["measurements"].size(), 5u);
  broken = 4;
  EXPECT_EQ(run()["reason"], "wrong result: a key is missing");
}

TEST(CaseRunner, RunsTwiceIfDeterministic) {
  FakeTestbed testbed;
  std::vector<std::string> phases;
  bool deterministic = false;
  const auto run = [&](const char* kernel, Direction direction, bool demanded) {
    Case c = small_case(direction);
    c.deterministic = demanded;
    phases.clear();
    const Verify notes = [&](const Subject& subject) {
      deterministic = subject.problem.deterministic;
      return passing()(subject);
    };
    return json_of_case(c, small_rule(), test_kernel(kernel), testbed, notes,
                        [&](const std::string& phase) { phases.push_back(phase); });
  };
  for (Direction direction : {Direction::kForward, Direction::kBackward}) {
    const Json json = run("good", direction, true);
    EXPECT_EQ(json["status"], "ok") << json;
    EXPECT_EQ(json["accuracy"]["same_bits"], true);
    EXPECT_TRUE(deterministic);
    EXPECT_THAT(phases, testing::Contains("running again, for the same bits"));
    EXPECT_FALSE(run("good", direction, false)["accuracy"].contains("same_bits"));
    EXPECT_FALSE(deterministic);
    EXPECT_THAT(phases, testing::Not(testing::Contains("running again, for the same bits")));
  }
  // With `deterministic`, different bits are a failure, and the case is not timed.
  EXPECT_EQ(run("flaky", Direction::kBackward, false)["status"], "ok");
  EXPECT_EQ(run("flaky", Direction::kForward, true)["status"], "ok");
  const Json json = run("flaky", Direction::kBackward, true);
  EXPECT_EQ(json["status"], "failed");
  EXPECT_EQ(json["reason"], "wrong result: dq: two runs differ, though a deterministic kernel was asked for");
  EXPECT_EQ(json["accuracy"]["same_bits"], false);
  EXPECT_FALSE(json.contains("time_s"));
}

TEST(CaseRunner, AddsSinksAndVerifiesThem) {
  FakeTestbed testbed;
  const auto run = [&](Direction direction, const std::function<void(const DeviceTensors&)>& spoil) {
    Case c = small_case(direction);
    c.sinks = true;
    const Verify verify = [&](const Subject& subject) {
      EXPECT_EQ(subject.problem.sinks.size(), 2u);
      spoil(subject.tensors);
      return verify_case(subject);
    };
    return json_of_case(c, small_rule(), cpu_naive(), testbed, verify, [](const std::string&) {});
  };
  const auto intact = [](const DeviceTensors&) {};
  for (Direction direction : {Direction::kForward, Direction::kBackward}) {
    const Json json = run(direction, intact);
    EXPECT_EQ(json["status"], "ok") << json;
    EXPECT_EQ(json["accuracy"]["counting"], "pass");
    EXPECT_EQ(json["accuracy"]["max_error"].contains("dsinks"), direction == Direction::kBackward);
  }
  const auto reason = [&](const std::function<void(const DeviceTensors&)>& spoil) {
    return run(Direction::kBackward, spoil)["reason"].get<std::string>();
  };
  EXPECT_THAT(reason([](const DeviceTensors& t) { t.dsinks[1] *= 1.001f; }), HasSubstr("dsinks: error"));
  EXPECT_THAT(reason([](const DeviceTensors& t) { t.dsinks[0] = NAN; }), HasSubstr("dsinks: error inf"));
  EXPECT_THAT(reason([](const DeviceTensors& t) { t.lse[3] += 1e-3f; }), HasSubstr("lse: error"));
  EXPECT_THAT(reason([](const DeviceTensors& t) { t.o.row<float>(5, 1)[0] += 0.01f; }),
              HasSubstr("o: error"));
}

TEST(CaseRunner, GivesTheKernelSoftcapAndSlopes) {
  FakeTestbed testbed;
  Case c = small_case(Direction::kForward);
  c.softcap = 20;
  c.alibi = true;
  const Verify looks = [](const Subject& subject) {
    EXPECT_EQ(subject.problem.softcap, 20);
    EXPECT_THAT(subject.problem.alibi_slopes, ElementsAre(1 / 16.f, 1 / 256.f));
    return passing_accuracy();
  };
  const Json json = json_of_case(c, small_rule(), cpu_naive(), testbed, looks, [](const std::string&) {});
  EXPECT_EQ(json["status"], "ok") << json;
}

TEST(CaseRunner, VerifiesWhatWasTimed) {
  FakeTestbed testbed;
  for (Direction direction : {Direction::kForward, Direction::kBackward}) {
    const Json json = json_of_case(small_case(direction), small_rule(), test_kernel("tires"), testbed,
                                   passing(), [](const std::string&) {});
    EXPECT_EQ(json["status"], "failed");
    EXPECT_THAT(json["reason"].get<std::string>(), HasSubstr("wrong result: while it was timed: "));
    EXPECT_FALSE(json.contains("time_s"));
  }
}

TEST(CaseRunner, ANaNErrorIsTheWorst) {
  FakeTestbed testbed;
  int calls = 0;
  const Verify drifting = [&](const Subject&) {
    Accuracy accuracy;
    accuracy.max_error["o"] = ++calls == 2 ? std::nan("") : 0.5;
    return accuracy;
  };
  Case c = small_case(Direction::kForward);
  c.mask = "causal_document";
  c.lengths = "uniform:2:5";
  c.masks = 3;
  const Json json =
      json_of_case(c, small_rule(), test_kernel("good"), testbed, drifting, [](const std::string&) {});
  EXPECT_EQ(calls, 3);
  EXPECT_TRUE(json["accuracy"]["max_error"]["o"].is_null());
}

TEST(CaseRunner, NamesTheAllocationThatDoesNotFit) {
  FakeTestbed testbed;
  testbed.available = 1000;
  const Json json = json_of_case(small_case(Direction::kForward), small_rule(), test_kernel("good"), testbed,
                                 passing(), [](const std::string&) {});
  EXPECT_EQ(json["status"], "failed");
  EXPECT_THAT(json["reason"].get<std::string>(),
              HasSubstr("out of memory (inputs and outputs: needs 3.12 KiB, 1000 B free)"));
}

}  // namespace
}  // namespace longspan::bench
