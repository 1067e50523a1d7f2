// The options of a run, and the summary of its outcome.
#pragma once

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "bench/run/team.h"
#include "bench/spec/case.h"
#include "bench/spec/timing_rule.h"
#include "record/record.h"

namespace longspan::bench {

struct RunOptions {
  std::string suite;                                // the suite's name, or "command line"
  std::string command;                              // as typed, with paths relative to the working folder
  std::map<std::string, std::string> kernel_words;  // what the command of a case needs besides, by kernel
  TimingRule rule;
  std::vector<Case> cases;
  std::vector<record::WorkloadRecord> workload;  // of which these are the cases
  std::string folder;                            // of results.jsonl
  bool resume = false;
  bool keep_failed = false;       // a resumed run does not try failed cases again
  bool mix_builds = false;        // a resumed run may be of another build than the last one
  std::vector<int> devices;       // GPUs to divide the cases over; empty: the first one
  bool all_devices = false;       // use all GPUs
  double stop_after_s = 0;        // no case starts after this time; 0: no limit
  std::FILE* progress = nullptr;  // stream for progress
  bool terminal = false;          // `progress` is a terminal
  Team* team = nullptr;           // if a launcher started several processes; this one is rank 0
};

struct RunSummary {
  std::string path;                         // of the results file
  int64_t ok = 0, skipped = 0, failed = 0;  // of this run's cases
  int64_t earlier = 0;                      // of the run that this one resumed, and not run again
  int64_t earlier_ok = 0;                   // those of them that were measured
  int64_t earlier_failed = 0;               // failed then, and not tried again
  int64_t left = 0;                         // not measured
  int64_t above_ceiling = 0;  // number of rates above the ceiling, whose measurement was then disturbed
  bool interrupted = false;
  bool stopped = false;  // by stop_after_s
  bool broken = false;   // the team's processes cannot measure any more cases
};

// The command that repeats a case with this rule.
std::string command_of(const Case& c, const TimingRule& rule);

}  // namespace longspan::bench
