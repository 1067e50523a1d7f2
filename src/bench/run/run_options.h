// What a run is asked to do, and how it went.
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "bench/run/team.h"
#include "bench/spec/case.h"
#include "bench/spec/timing_rule.h"

namespace longspan::bench {

struct RunOptions {
  std::string suite;    // its name, or "command line"
  std::string command;  // as typed, with paths relative to the working folder
  TimingRule rule;
  std::vector<Case> cases;
  std::string folder;  // of results.jsonl
  bool resume = false;
  std::vector<int> devices;       // GPUs to divide the cases over; none: the first
  bool all_devices = false;       // use all GPUs
  double stop_after_s = 0;        // no case begins later than this; 0: no limit
  std::FILE* progress = nullptr;  // where progress goes
  bool terminal = false;          // progress goes to a terminal
  Team* team = nullptr;           // where a launcher started several processes; this one is rank 0
};

struct RunSummary {
  std::string path;                         // of the results file
  int64_t ok = 0, skipped = 0, failed = 0;  // of this run's cases
  int64_t earlier = 0;                      // done before, by the run that this one resumed
  int64_t left = 0;                         // not done
  int64_t above_ceiling = 0;                // rates above the ceiling: its measurement was disturbed
  bool interrupted = false;
  bool stopped = false;  // by stop_after_s
  bool broken = false;   // the team's processes can measure no further case
};

// The command that repeats a case by this rule.
std::string command_of(const Case& c, const TimingRule& rule);

}  // namespace longspan::bench
