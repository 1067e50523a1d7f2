// One device's part of a run: it measures the device's ceiling, then case after case, each in a process of
// its own. Lanes run at the same time, on a thread each; what they share is the ledger.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bench/run/isolation.h"
#include "bench/run/progress.h"
#include "bench/run/runner.h"
#include "record/results.h"

namespace longspan::bench {

// The results file, the progress and the counts of a run. Every call may come from any thread.
class Ledger {
 public:
  Ledger(const RunOptions& options, ResultsFile& file, SignalGuard& guard, std::vector<Case> cases,
         size_t lanes);

  // False where no case is to begin any more: interrupted, the time is up, or another lane has failed.
  bool may_begin();
  void interrupt();
  void give_up() { given_up_ = true; }
  void break_up();  // the same, since the team's processes have failed

  void note(const std::string& text);
  void write_run(const Json& line);
  void begin(const Case& c);
  void end(const Case& c, const Json& line, const Json& outcome, double elapsed_s);

  // Reasons for which a kernel can run no case.
  void always_skip(const std::string& kernel, const std::string& reason);
  std::string always_skipped(const std::string& kernel);  // empty: it is not

  RunSummary finish();

 private:
  const RunOptions& options_;
  ResultsFile& file_;
  SignalGuard& guard_;
  std::atomic<bool> given_up_ = false;
  double begin_s_;
  std::mutex mutex_;  // of what follows
  Progress progress_;
  RunSummary summary_;
  std::map<std::string, std::string> always_skipped_;  // kernel -> reason
};

class Lane {
 public:
  // `variables`: of the environment of its processes, which see `device` under its number.
  Lane(const RunOptions& options, const Workbench& workbench, Ledger& ledger, SignalGuard& guard,
       const Device& device, const Variables& variables, std::vector<Device> devices);

  // Measures the ceilings, writes the run's record and starts what `cases` need. False if interrupted.
  bool begin(const std::vector<Case>& cases);

  // Runs a case and writes its line. False if interrupted: the case is then as if it had never begun.
  bool run_one(const Case& c);

 private:
  // A kernel's helper, and how many before it could not serve.
  struct Kept {
    std::unique_ptr<Helper> helper;
    bool used = false;
    size_t useless = 0;
  };

  std::optional<Json> skip_at_once(const Case& c);
  std::optional<Json> measure(const Case& c);
  std::optional<Json> attempt(const Case& c);
  std::optional<Json> measure_with_team(const Case& c);
  void record(const Case& c, Json outcome);
  Helper* helper_for(const Case& c);
  void start_helper(const std::string& kernel);
  bool end_other_helpers(const Case& c);
  void look_after_helper(const Case& c, Json& outcome);
  double devices_of(const Case& c) const;

  const RunOptions& options_;
  const Workbench& workbench_;
  Ledger& ledger_;
  Isolation isolation_;
  const Device device_;
  const Variables variables_;
  const std::vector<Device> devices_;  // of the machine
  std::string run_id_;
  std::string started_;  // the present case
  double begin_s_ = 0;
  std::map<DType, double> ceilings_;
  std::map<std::string, Kept> helpers_;  // by kernel
};

Json rule_json(const TimingRule& rule);

}  // namespace longspan::bench
