// Results as read back: runs and cases of one or several results files (docs/reference/results.md), checked
// and typed, so that nothing behind this header has to distrust them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/parallel_record.h"

namespace longspan::report {

inline constexpr int kResultsSchema = 1;

// One key of an open-ended object (machine, software, options, ...), nested keys joined by '.'.
struct Fact {
  std::string key;
  std::string text;  // as a reader would write it: 8, 0.05, "performance", "256,256"
  std::optional<double> number;
};
using Facts = std::vector<Fact>;
const Fact* find_fact(const Facts& facts, std::string_view key);  // null where absent
std::string fact_text(const Facts& facts, std::string_view key);  // empty where absent
std::optional<double> fact_number(const Facts& facts, std::string_view key);

struct Interval {
  double lo = 0, hi = 0;
};

struct Ceiling {
  std::string dtype, what;
  double flops_per_s = 0;
};

struct RunRecord {
  std::string id, started, command, suite;
  Facts machine, device, software, rule;
  std::vector<Ceiling> ceilings;
  std::string source;  // the name under which its file was read
  int setup = 0;       // index into Results::setups

  const Ceiling* ceiling(std::string_view dtype) const;  // null where not measured
  std::string device_name() const;  // the device, else the CPU model, else "unknown device"
};

// The runs of one source on one device with one build: what a reader takes for one series of measurements. A
// run that was interrupted and resumed is one setup.
struct Setup {
  std::string label;      // unique, short
  std::string source;     // its file's label: that of several builds or machines in one file
  std::vector<int> runs;  // indices into Results::runs, in file order
};

struct Measurement {
  int64_t index = 0;  // of the mask
  double area = 0, flops = 0;
  std::optional<double> plan_s, median_s;
  std::optional<Interval> interval_s;
  std::optional<bool> converged;
  Facts params;
  int64_t documents = 0;
  std::vector<double> samples_s;  // in the order taken
};

struct ErrorFigure {
  std::string tensor;  // "o", "lse", "dq", "dk", "dv"
  double error = 0;
  std::optional<double> tolerance;
};

struct Accuracy {
  std::vector<std::string> checked;
  std::vector<ErrorFigure> errors;
  std::string counting;           // "pass", "fail", or empty where not checked
  std::optional<bool> same_bits;  // of two runs, where that was demanded

  // The error nearest to (or furthest beyond) its tolerance; null without one.
  const ErrorFigure* worst() const;
};

// A mask on a square grid, row by row from the top: the visible share of each cell, 0 nothing, 255
// everything.
struct Picture {
  int64_t size = 0;            // of one side
  std::vector<uint8_t> cells;  // [size, size]
};

struct Workload {
  std::string kernel, mask, dtype, direction, lengths;
  int64_t seqlen = 0, heads_q = 0, heads_kv = 0, head_dim = 0, masks = 1;
  Facts options;               // of the pattern, where they differ from its defaults
  bool deterministic = false;  // the same bits on every run were demanded
  Facts extra;                 // axes that this version does not know: strategy, ranks, ...
};

enum class Status : uint8_t { kOk, kSkipped, kFailed };
std::string_view name_of(Status status);

struct CaseRecord {
  int run = 0;  // index into Results::runs
  std::string id;
  Workload workload;
  std::string command, reason, started;
  Status status = Status::kOk;
  std::optional<double> elapsed_s, area, density, flops, time_s, flops_per_s, share_of_ceiling, plan_s;
  std::optional<double> plan_bytes, workspace_bytes, peak_bytes, throttled;
  std::optional<Interval> interval_s;
  std::optional<Accuracy> accuracy;
  Facts device_state;
  std::vector<Measurement> measurements;
  std::optional<Picture> picture;
  std::optional<ParallelRecord> parallel;  // of a case that was spread over ranks
};

struct Results {
  std::vector<RunRecord> runs;
  std::vector<Setup> setups;
  std::vector<CaseRecord> cases;      // of a case measured twice in one setup, the last
  std::vector<std::string> warnings;  // for the user, one line each

  const RunRecord& run_of(const CaseRecord& c) const { return runs[static_cast<size_t>(c.run)]; }
  int setup_of(const CaseRecord& c) const { return run_of(c).setup; }
};

// Reads the text of one results file; `name` stands for it in messages and labels. Throws an input error that
// names the line for anything malformed and for a schema that this version does not know. A last line cut
// short while it was written is left out, with a warning.
Results parse_results(std::string_view text, std::string_view name);

// Reads files, and folders that hold a results.jsonl (at any depth), into one.
Results read_results(const std::vector<std::filesystem::path>& paths);

}  // namespace longspan::report
