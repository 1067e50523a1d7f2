// Whole runs in processes of the program, on kernels that fail in every way.
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "record/json.h"
#include "record/results_file.h"

namespace longspan::bench {
namespace {

namespace fs = std::filesystem;
using record::Json, record::parse_results_line, record::ResultsLine;
using testing::AllOf;
using testing::HasSubstr;

class RunTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("longspan_run_test_" + std::to_string(getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // A small case for each of these kernels, with a quick timing rule.
  static std::string cases(const std::string& kernels, const std::string& more = "") {
    return "run --kernel " + kernels +
           " --mask causal --seqlen 32 --heads 2:1 --head-dim 8 --warmup-s 0 --min-samples 6 --max-samples 6 "
           "--budget-s 5 " +
           more;
  }

  std::string out() const { return " --out " + (folder_ / "out").string(); }
  fs::path results_path() const { return folder_ / "out" / "results.jsonl"; }

  struct Outcome {
    int status = 0;
    std::string output;  // stdout and stderr
  };
  Outcome run(const std::string& arguments) const {
    const std::string log = (folder_ / "log").string();
    const int status = std::system(fmt::format("{} {} > {} 2>&1", TEST_PROGRAM, arguments, log).c_str());
    std::ifstream file(log);
    return {WEXITSTATUS(status), {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()}};
  }

  std::vector<ResultsLine> lines(ResultsLine::Type type) const {
    std::vector<ResultsLine> found;
    std::ifstream file(results_path());
    for (std::string text; std::getline(file, text);) {
      ResultsLine line = parse_results_line(text);
      if (line.type == type) found.push_back(std::move(line));
    }
    return found;
  }
  std::map<std::string, Json> by_kernel() const {
    std::map<std::string, Json> found;
    for (const ResultsLine& line : lines(ResultsLine::Type::kCase)) {
      const std::string kernel = line.json["case"]["kernel"].get<std::string>();
      EXPECT_EQ(found.count(kernel), 0u) << kernel;
      found[kernel] = line.json;
    }
    return found;
  }

  fs::path folder_;
};

TEST_F(RunTest, ACorrectKernelGivesACompleteLine) {
  const Outcome outcome = run(cases("good", "--direction fwd,bwd") + out());
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  ASSERT_EQ(lines(ResultsLine::Type::kRun).size(), 1u);
  const Json record = lines(ResultsLine::Type::kRun)[0].json;
  for (const char* key :
       {"run", "started", "command", "suite", "machine", "device", "software", "rule", "ceilings"}) {
    EXPECT_TRUE(record.contains(key)) << key;
  }
  EXPECT_EQ(record["ceilings"]["f32"]["flops_per_s"], 1e9);
  EXPECT_EQ(record["device"]["kind"], "cpu");
  EXPECT_EQ(record["rule"]["max_samples"], 6);
  EXPECT_THAT(record["command"].get<std::string>(), HasSubstr("longspan run --kernel good --mask causal"));

  const auto found = lines(ResultsLine::Type::kCase);
  ASSERT_EQ(found.size(), 2u);
  const double area = 2 * (32 * 33 / 2);
  for (const ResultsLine& line : found) {
    const Json& json = line.json;
    EXPECT_EQ(json["run"], record["run"]);
    EXPECT_EQ(json["status"], "ok");
    EXPECT_EQ(json["area"], area);
    const bool backward = json["case"]["direction"] == "backward";
    EXPECT_EQ(json["flops"], 4 * area * 8 * (backward ? 2.5 : 1));
    EXPECT_DOUBLE_EQ(json["flops_per_s"].get<double>() / 1e9, json["share_of_ceiling"].get<double>());
    EXPECT_EQ(json["accuracy"]["counting"], "pass");
    EXPECT_EQ(json["accuracy"]["max_error"].size(), backward ? 5u : 2u);
    EXPECT_EQ(json["picture"]["size"], 48);
    ASSERT_EQ(json["measurements"].size(), 1u);
    EXPECT_EQ(json["measurements"][0]["samples_s"].size(), 6u);
    EXPECT_EQ(json["interval_s"].size(), 2u);
    EXPECT_THAT(json["command"].get<std::string>(),
                HasSubstr("longspan run --kernel good --mask causal --seqlen 32"));
  }
}

TEST_F(RunTest, DeterministicIsASeparateCase) {
  const Outcome outcome =
      run(cases("good,flaky,unsupported", "--direction bwd --deterministic false,true") + out());
  EXPECT_EQ(outcome.status, 1) << outcome.output;
  std::map<std::pair<std::string, bool>, Json> found;
  for (const ResultsLine& line : lines(ResultsLine::Type::kCase)) {
    const Json& c = line.json["case"];
    const bool demanded = c.contains("deterministic");
    found[{c["kernel"].get<std::string>(), demanded}] = line.json;
    EXPECT_EQ(line.json["command"].get<std::string>().find("--deterministic") != std::string::npos, demanded);
  }
  ASSERT_EQ(found.size(), 6u);
  for (const bool demanded : {false, true}) {
    EXPECT_EQ((found[{"good", demanded}]["status"]), "ok");
    EXPECT_EQ((found[{"unsupported", demanded}]["reason"]), "needs a Tuesday");
  }
  EXPECT_EQ((found[{"good", true}]["accuracy"]["same_bits"]), true);
  EXPECT_EQ((found[{"flaky", false}]["status"]), "ok");
  EXPECT_THAT((found[{"flaky", true}]["reason"].get<std::string>()), HasSubstr("two runs differ"));
  EXPECT_THAT(outcome.output, HasSubstr("same bits"));  // a column of the table
}

TEST_F(RunTest, EveryFailureIsRecordedWithItsReasonAndTheRunContinues) {
  const Outcome outcome =
      run(cases("wrong,unsupported,throws,crash,abort,killed,out-of-memory,bad-alloc,huge-workspace,"
                "exits,garbage,cuda-only,good") +
          out());
  EXPECT_EQ(outcome.status, 1) << outcome.output;
  auto found = by_kernel();
  ASSERT_EQ(found.size(), 13u) << outcome.output;
  const auto expect = [&](const char* kernel, const char* status, const auto& reason) {
    EXPECT_EQ(found[kernel]["status"], status) << kernel;
    EXPECT_THAT(found[kernel].value("reason", ""), reason) << kernel;
    EXPECT_FALSE(found[kernel].contains("time_s")) << kernel;
  };
  expect("wrong", "failed", HasSubstr("wrong result: o"));
  expect("unsupported", "skipped", testing::StrEq("needs a Tuesday"));
  expect("throws", "failed", HasSubstr("the kernel lost count"));
  expect("crash", "failed", HasSubstr("crashed (SIGSEGV) in the first run"));
  expect("abort", "failed",
         HasSubstr("crashed (SIGABRT) in the first run: an assertion of the kernel failed"));
  expect("killed", "failed", HasSubstr("killed (SIGKILL) in the first run, probably out of memory"));
  expect("out-of-memory", "failed", AllOf(HasSubstr("out of memory"), HasSubstr("GiB")));
  expect("bad-alloc", "failed", HasSubstr("out of memory"));
  expect("huge-workspace", "failed", HasSubstr("out of memory (the forward workspace: needs 1.00 PiB"));
  expect("exits", "failed", HasSubstr("ended with exit code 9 in the first run"));
  expect("garbage", "failed", HasSubstr("no json"));
  expect("cuda-only", "skipped", HasSubstr("needs a CUDA device"));
  EXPECT_EQ(found["good"]["status"], "ok");
}

TEST_F(RunTest, AProcessServesCasesUntilOneFails) {
  EXPECT_EQ(run(cases("good,unsupported,suspect,throws,spoils") + out()).status, 1);
  auto found = by_kernel();
  EXPECT_EQ(found["good"]["settings"], found["suspect"]["settings"]);  // a refusal does not end the process
  EXPECT_NE(found["good"]["settings"], found["spoils"]["settings"]);   // a failure does
}

TEST_F(RunTest, ACaseIsRetriedIfAnEarlierOneSpoiledItsProcess) {
  const Outcome outcome = run(cases("spoils,suspect,good") + out());
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  auto found = by_kernel();
  EXPECT_EQ(found["suspect"]["status"], "ok") << found["suspect"].value("reason", "");
  EXPECT_NE(found["suspect"]["settings"], found["spoils"]["settings"]);
  EXPECT_EQ(found["suspect"]["settings"], found["good"]["settings"]);
}

TEST_F(RunTest, AHangEndsAtTheTimeLimit) {
  const Outcome outcome = run(cases("hang,good", "--timeout-s 2") + out());
  EXPECT_EQ(outcome.status, 1);
  auto found = by_kernel();
  EXPECT_THAT(found["hang"].value("reason", ""),
              HasSubstr("hung: not finished within the time limit of 2 s in the first run"));
  EXPECT_EQ(found["good"]["status"], "ok");
}

TEST_F(RunTest, AllocationsThatDoNotFitAreReportedInAdvance) {
  const Outcome outcome =
      run("run --kernel good --mask causal --seqlen 64M --heads 512:512 --head-dim 256 --out " +
          (folder_ / "big").string());
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.output,
              AllOf(HasSubstr("out of memory (inputs and outputs: needs "), HasSubstr("free")));
}

TEST_F(RunTest, WithoutACeilingThereIsNoShare) {
  EXPECT_EQ(run(cases("unsupported", "--dtype bf16 --allow-skipped") + out()).status, 0);
  EXPECT_EQ(lines(ResultsLine::Type::kRun)[0].json["ceilings"], Json::object());
}

TEST_F(RunTest, MasksThatCannotBeDrawnAreSkipped) {
  const Outcome outcome = run("run --kernel good --mask block_causal_document --seqlen 100" + out());
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.output, HasSubstr("nothing was measured: every case was skipped"));
  EXPECT_THAT(by_kernel()["good"].value("reason", ""), HasSubstr("must be a multiple of the block"));
}

TEST_F(RunTest, SeveralMasksAreMeasuredSeparatelyAndAveraged) {
  const Outcome outcome =
      run("run --kernel good --mask causal_document --seqlen 128 --heads 1 --head-dim 8 --masks 3 --lengths "
          "uniform:5:20 "
          "--warmup-s 0 --min-samples 6 --max-samples 6" +
          out());
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  const Json json = by_kernel()["good"];
  ASSERT_EQ(json["measurements"].size(), 3u);
  double area = 0, flops = 0, time = 0;
  for (const Json& m : json["measurements"]) {
    area += m["area"].get<double>() / 3;
    flops += m["flops"].get<double>();
    time += m["median_s"].get<double>();
  }
  EXPECT_NEAR(json["area"].get<double>(), area, 1e-6);
  EXPECT_NEAR(json["time_s"].get<double>(), time / 3, 1e-9);
  EXPECT_NEAR(json["flops_per_s"].get<double>() / (flops / time), 1, 1e-3);
  EXPECT_NE(json["measurements"][0]["area"], json["measurements"][1]["area"]);
  EXPECT_EQ(json["accuracy"]["masks"], 3);
}

// A mask that cannot be counted (a head dimension too small for the slots) is compared, whatever its number.
TEST_F(RunTest, MasksThatCannotBeCountedAreCompared) {
  const Outcome outcome =
      run("run --kernel good --mask causal_document --seqlen 64 --heads 1 --head-dim 1,8 --masks 4 --lengths "
          "uniform:5:20 --warmup-s 0 --min-samples 6 --max-samples 6" +
          out());
  ASSERT_EQ(outcome.status, 0) << outcome.output;
  for (const ResultsLine& line : lines(ResultsLine::Type::kCase)) {
    const bool counted = line.json["case"]["head_dim"] == 8;
    EXPECT_EQ(line.json["accuracy"]["masks"], counted ? 3 : 4);
    EXPECT_EQ(line.json["accuracy"]["counting"], counted ? Json("pass") : Json());
  }
}

TEST_F(RunTest, RefusesAFolderWithResultsAndResumesOnlyMissingCases) {
  ASSERT_EQ(run(cases("good") + out()).status, 0);
  const Outcome again = run(cases("good") + out());
  EXPECT_EQ(again.status, 2);
  EXPECT_THAT(again.output, HasSubstr("--resume"));
  const Outcome more = run(cases("good,unsupported") + out() + " --resume");
  EXPECT_EQ(more.status, 0);
  EXPECT_THAT(more.output, HasSubstr("1 skipped, 0 failed, 1 measured before"));
  EXPECT_EQ(by_kernel().size(), 2u);
  // With no case left, the file does not change.
  const auto before = fs::file_size(results_path());
  EXPECT_EQ(run(cases("good,unsupported") + out() + " --resume").status, 0);
  EXPECT_EQ(fs::file_size(results_path()), before);
}

TEST_F(RunTest, ResumeRunsTheCaseOfAHalfLineAgain) {
  ASSERT_EQ(run(cases("good,unsupported") + out()).status, 0);
  fs::resize_file(results_path(), fs::file_size(results_path()) - 10);
  EXPECT_EQ(run(cases("good,unsupported") + out() + " --resume").status, 0);
  EXPECT_EQ(by_kernel().size(), 2u);
}

// The statuses of a kernel's lines, in order.
std::vector<std::string> statuses(const std::vector<ResultsLine>& cases, const std::string& kernel) {
  std::vector<std::string> found;
  for (const ResultsLine& line : cases) {
    if (line.json["case"]["kernel"] == kernel) found.push_back(line.json["status"].get<std::string>());
  }
  return found;
}

TEST_F(RunTest, ResumeTriesFailedCasesAgain) {
  using testing::ElementsAre;
  const std::string some = cases("faulty,good,unsupported") + out();
  setenv("TEST_FAULT", "1", 1);
  EXPECT_EQ(run(some).status, 1);
  EXPECT_EQ(run(some + " --resume").status, 1);
  EXPECT_THAT(statuses(lines(ResultsLine::Type::kCase), "faulty"), ElementsAre("failed", "failed"));
  unsetenv("TEST_FAULT");

  // A failure that is kept still counts, and nothing is written.
  const auto before = fs::file_size(results_path());
  const Outcome kept = run(some + " --resume --keep-failed");
  EXPECT_EQ(kept.status, 1);
  EXPECT_THAT(kept.output, HasSubstr("0 failed, 2 measured before, 1 failed before"));
  EXPECT_EQ(fs::file_size(results_path()), before);

  const Outcome again = run(some + " --resume");
  EXPECT_EQ(again.status, 0) << again.output;
  EXPECT_THAT(again.output, HasSubstr("1 measured, 0 skipped, 0 failed, 2 measured before:"));
  EXPECT_THAT(statuses(lines(ResultsLine::Type::kCase), "faulty"), ElementsAre("failed", "failed", "ok"));
  EXPECT_THAT(statuses(lines(ResultsLine::Type::kCase), "good"), ElementsAre("ok"));
  EXPECT_EQ(run(some + " --resume").status, 0) << "nothing is left, and nothing failed";
}

TEST_F(RunTest, AFailureThatTheRunDidNotReachCounts) {
  setenv("TEST_FAULT", "1", 1);
  EXPECT_EQ(run(cases("faulty") + out()).status, 1);
  unsetenv("TEST_FAULT");
  const Outcome stopped = run(cases("hang,faulty", "--timeout-s 2 --stop-after 1s") + out() + " --resume");
  EXPECT_EQ(stopped.status, 1);
  EXPECT_THAT(stopped.output, HasSubstr("0 measured, 0 skipped, 1 failed, 1 failed before"));
}

TEST_F(RunTest, ResumeRefusesAnotherBuild) {
  ASSERT_EQ(run(cases("good") + out()).status, 0);
  std::string text;
  {
    std::ifstream file(results_path());
    for (std::string line; std::getline(file, line);) {
      Json json = record::parse_json(line);
      json.erase("crc32");
      if (json["type"] == "run") {
        json["software"]["compiler"] = "Acme C 1.0";
        json["software"]["build_id"] = "0123";
      }
      text += json.dump() + "\n";
    }
  }
  std::ofstream(results_path()) << text;
  const std::string more = cases("good,faulty") + out() + " --resume";
  const Outcome refused = run(more);
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.output, AllOf(HasSubstr("another build"), HasSubstr("compiler \"Acme C 1.0\", now \""),
                                    HasSubstr("build_id \"0123\", now \""), HasSubstr("--mix-builds")));
  EXPECT_EQ(fs::file_size(results_path()), text.size());
  EXPECT_EQ(run(more + " --mix-builds").status, 0);
  EXPECT_EQ(by_kernel().size(), 2u);
  // The last run is now of this build.
  EXPECT_EQ(run(cases("good,faulty,spoils") + out() + " --resume").status, 0);
}

TEST_F(RunTest, ResumeRefusesAnotherRule) {
  ASSERT_EQ(run(cases("good") + out()).status, 0);
  const Outcome outcome = run(cases("good,unsupported", "--half-width 0.5") + out() + " --resume");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.output, HasSubstr("was started with half_width = 0.02, not 0.5"));
}

TEST_F(RunTest, AWrongVariableIsRefusedBeforeAnythingIsWritten) {
  setenv("LONGSPAN_THREADS", "abc", 1);
  const Outcome outcome = run(cases("good") + out());
  unsetenv("LONGSPAN_THREADS");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.output, HasSubstr("LONGSPAN_THREADS='abc'"));
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

TEST_F(RunTest, AnInterruptLeavesACompleteFileAndNoProcess) {
  const std::string folder = (folder_ / "out").string();
  const pid_t child = fork();
  if (child == 0) {
    if (std::freopen("/dev/null", "w", stderr) == nullptr ||
        std::freopen("/dev/null", "w", stdout) == nullptr)
      _exit(99);
    execl(TEST_PROGRAM, TEST_PROGRAM, "run", "--kernel", "good,hang", "--mask", "causal", "--seqlen", "32",
          "--heads", "1", "--head-dim", "8", "--warmup-s", "0", "--max-samples", "6", "--min-samples", "6",
          "--out", folder.c_str(), static_cast<char*>(nullptr));
    _exit(99);
  }
  // Wait until the good case is done and the hanging one has started.
  for (int i = 0; i < 3000 && (!fs::exists(results_path()) || lines(ResultsLine::Type::kCase).empty()); ++i)
    usleep(10000);
  kill(child, SIGINT);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 130);
  EXPECT_EQ(lines(ResultsLine::Type::kCase).size(), 1u);
  EXPECT_EQ(run(cases("good,unsupported") + " --out " + (folder_ / "other").string()).status, 0);
}

TEST_F(RunTest, ARunStopsBetweenCasesAfterItsTimeAndIsResumed) {
  // The hang takes longer than that, so no case starts after it.
  const std::string two = cases("hang,throws,good", "--timeout-s 2 --stop-after 1s") + out();
  const Outcome stopped = run(two);
  EXPECT_EQ(stopped.status, 1) << stopped.output;  // the hang failed
  EXPECT_THAT(stopped.output, AllOf(HasSubstr("stopped after 1s with 2 cases left"), HasSubstr("--resume")));
  EXPECT_EQ(lines(ResultsLine::Type::kCase).size(), 1u);
  const Outcome resumed =
      run(cases("hang,throws,good", "--timeout-s 2 --stop-after 1h") + out() + " --resume --keep-failed");
  EXPECT_EQ(resumed.status, 1) << resumed.output;
  EXPECT_EQ(by_kernel().size(), 3u);
  EXPECT_EQ(by_kernel()["good"]["status"], "ok");
}

// The numbers of the devices that measured each problem.
std::map<std::string, std::set<std::string>> devices_by_problem(const std::vector<ResultsLine>& runs,
                                                                const std::vector<ResultsLine>& cases) {
  std::map<std::string, std::string> uuids;
  for (const ResultsLine& run : runs) uuids[run.run] = run.json["device"]["uuid"].get<std::string>();
  std::map<std::string, std::set<std::string>> found;
  for (const ResultsLine& line : cases) {
    Json problem = line.json["case"];
    problem.erase("kernel");
    problem.erase("direction");
    found[problem.dump()].insert(uuids.at(line.run));
  }
  return found;
}

TEST_F(RunTest, RunsAllKernelsOfAProblemOnOneDevice) {
  setenv("TEST_DEVICES", "3", 1);
  const std::string some =
      "run --mask causal,full,share_question,sliding_window --seqlen 32,64 --heads 2:1 --head-dim 8 "
      "--direction fwd,bwd "
      "--warmup-s 0 --min-samples 6 --max-samples 6 --devices all";
  const Outcome outcome = run(some + " --kernel good" + out());
  EXPECT_EQ(outcome.status, 0) << outcome.output;
  EXPECT_EQ(lines(ResultsLine::Type::kRun).size(), 3u);
  EXPECT_EQ(lines(ResultsLine::Type::kCase).size(), 16u);
  const auto before = devices_by_problem(lines(ResultsLine::Type::kRun), lines(ResultsLine::Type::kCase));
  std::set<std::string> used;
  for (const auto& [problem, devices] : before) used.insert(devices.begin(), devices.end());
  EXPECT_EQ(used.size(), 3u);

  // Cases added later run on the device that measured their problem.
  const Outcome resumed = run(some + " --kernel good,throws" + out() + " --resume");
  EXPECT_EQ(resumed.status, 1) << resumed.output;
  EXPECT_EQ(lines(ResultsLine::Type::kCase).size(), 32u);
  EXPECT_EQ(devices_by_problem(lines(ResultsLine::Type::kRun), lines(ResultsLine::Type::kCase)), before);

  const Outcome wrong = run(cases("good", "--devices 1,7") + " --out " + (folder_ / "other").string());
  EXPECT_EQ(wrong.status, 2);
  EXPECT_THAT(wrong.output, HasSubstr("--devices 7: there is no such GPU"));
  unsetenv("TEST_DEVICES");
}

TEST_F(RunTest, AnInterruptEndsTheRunsOfAllDevices) {
  setenv("TEST_DEVICES", "2", 1);
  const pid_t child = fork();
  if (child == 0) {
    execl(TEST_PROGRAM, TEST_PROGRAM, "run", "--kernel", "hang", "--mask", "causal,full", "--seqlen", "32",
          "--heads", "1", "--head-dim", "8", "--devices", "0,1", "--out", (folder_ / "out").c_str(), nullptr);
    _exit(127);
  }
  while (!fs::exists(results_path()) || lines(ResultsLine::Type::kRun).size() < 2) usleep(10000);
  kill(child, SIGINT);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 130);
  EXPECT_EQ(lines(ResultsLine::Type::kCase).size(), 0u);
  unsetenv("TEST_DEVICES");
}

TEST_F(RunTest, WrongOptionsAreOneLineAndExitCode2) {
  const auto expect = [&](const std::string& arguments, const auto& message) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_THAT(outcome.output, message) << arguments;
    EXPECT_EQ(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 1) << outcome.output;
  };
  expect("run --kernel god --mask full --seqlen 32",
         HasSubstr("--kernel 'god' is unknown (did you mean 'good'?)"));
  expect("run --kernel good --mask fulll --seqlen 32",
         AllOf(HasSubstr("--mask"), HasSubstr("fulll"), HasSubstr("causal")));
  expect("run --kernel good --mask full --seqlen 32,8X", HasSubstr("--seqlen '8X': must be a whole number"));
  expect("run --kernel good --mask full", HasSubstr("--seqlen is missing"));
  expect("run --kernel good --mask full --seqlen 32 --heads 8:3", HasSubstr("'8:3'"));
  expect("run --kernel good --mask full --seqlen 32 --deterministic true,maybe",
         HasSubstr("--deterministic 'maybe': must be true or false"));
  expect("run nosuch", AllOf(HasSubstr("suite 'nosuch' is unknown"), HasSubstr("quick")));
  expect("run quick --mask full", HasSubstr("--filter"));
  expect("run --kernel good --mask full --seqlen 32 --filter 'seqlen>>3'", HasSubstr("at character 7"));
  expect("run --kernel good --mask full --seqlen 32 --filter 'seqlen>64'",
         HasSubstr("selects none of the 1 cases"));
  expect("run --kernel good --mask full --seqlen 32 --resume", HasSubstr("--resume needs --out"));
  expect("run --kernel good --mask full --seqlen 32 --half-width 2",
         HasSubstr("--half-width '2': must be a number"));
  expect("run --kernel good --mask full --seqlen 32 --devices 0,x",
         HasSubstr("--devices '0,x': must be all"));
  expect("run --kernel good --mask full --seqlen 32 --devices 1",
         HasSubstr("--devices 1: there is no such GPU"));
  for (const char* wrong : {"0s", "x", "-3m", "5d"}) {
    expect(fmt::format("run --kernel good --mask full --seqlen 32 --stop-after={}", wrong),
           HasSubstr("--stop-after"));
  }
  EXPECT_FALSE(fs::exists(results_path()));
}

TEST_F(RunTest, ADryRunListsTheCommandsOfTheCases) {
  const Outcome outcome = run(cases("good,wrong", "--dry-run") + out());
  EXPECT_EQ(outcome.status, 0);
  EXPECT_THAT(outcome.output, AllOf(HasSubstr("2 cases"),
                                    HasSubstr("longspan run --kernel wrong --mask causal --seqlen 32")));
  EXPECT_FALSE(fs::exists(results_path()));
}

}  // namespace
}  // namespace longspan::bench
