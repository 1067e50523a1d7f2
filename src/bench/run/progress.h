// The output of a run: a line for each finished case and, on a terminal, a bar with the time left.
#pragma once

#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "bench/measure/stopwatch.h"
#include "bench/spec/case.h"
#include "record/record.h"

namespace longspan::bench {

// Estimates the time of the remaining cases from the mean of similar ones: of the same kernel, direction and
// shape, else of the same kernel and direction, else of all.
class TimeLeft {
 public:
  // `at_once`: how many cases are measured at the same time.
  explicit TimeLeft(std::vector<Case> cases, size_t at_once = 1);
  void done(const Case& c, double elapsed_s);
  double estimate_s() const;  // negative while nothing is known

 private:
  struct Mean {
    double sum_s = 0;
    int64_t count = 0;
  };
  std::vector<std::string> keys_of(const Case& c) const;

  std::vector<Case> cases_;
  size_t at_once_;
  std::map<std::string, Mean> means_;
};

class Progress {
 public:
  // `finished`: how many cases an earlier run measured. On a terminal the bar is the last line.
  Progress(std::FILE* out, bool terminal, Clock& clock, std::vector<Case> cases, size_t finished,
           size_t at_once = 1);

  void note(const std::string& text);  // prints a separate line
  void begin(const Case& c);
  void end(const Case& c, const record::Outcome& outcome, double elapsed_s);
  void clear();  // removes the bar

 private:
  void draw_bar(const std::string& what);
  void write(const std::string& text);

  std::FILE* out_;
  bool terminal_;
  Clock& clock_;
  size_t total_, finished_;
  TimeLeft time_left_;
};

// "12.3 ms, 85.1 GFLOP/s, 61 % of the ceiling", or the status and its reason.
std::string describe_outcome(const record::Outcome& outcome);

}  // namespace longspan::bench
