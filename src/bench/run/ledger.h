// The results file, progress and counts of a run, shared by its devices.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "bench/run/child_process.h"
#include "bench/run/progress.h"
#include "bench/run/run_options.h"
#include "record/results_file.h"

namespace longspan::bench {

// What earlier runs of the file left: the last line of each case of this run counts.
struct Earlier {
  int64_t ok = 0;
  std::set<std::string> failed;  // ids
};

// All functions may be called from any thread.
class Ledger {
 public:
  // `cases`: those of `options` that are run.
  Ledger(const RunOptions& options, record::ResultsFile& file, SignalGuard& guard,
         const std::vector<Case>& cases, Earlier earlier, size_t devices);

  // False if no further case may begin: the run was interrupted, its time is up, or another device has
  // failed.
  bool may_begin();
  void interrupt();
  void give_up() { given_up_ = true; }
  void break_up();  // gives up because processes of the team have failed

  void note(const std::string& text);
  void write(const record::RunRecord& run);
  void write(const record::WorkloadRecord& workload);
  void begin(const Case& c);
  void end(const Case& c, const record::CaseRecord& result);

  // Reasons why a kernel cannot run any case here.
  void always_skip(const std::string& kernel, const std::string& reason);
  std::string always_skipped(const std::string& kernel);  // empty if it can

  RunSummary finish();

 private:
  const RunOptions& options_;
  record::ResultsFile& file_;
  SignalGuard& guard_;
  std::atomic<bool> given_up_ = false;
  double begin_s_;
  std::mutex mutex_;  // guards the members below
  Progress progress_;
  RunSummary summary_;
  std::set<std::string> failed_before_;                // ids of failed cases that were not tried again yet
  std::map<std::string, std::string> always_skipped_;  // kernel -> reason
};

}  // namespace longspan::bench
