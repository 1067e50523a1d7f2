// Runs and cases read from one or several results files (docs/reference/results.md). They are fully checked
// while reading, so that users of this header need no further checks.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "record/record.h"

namespace longspan::report {

using record::Facts, record::Fact, record::fact_text;
using record::Interval, record::Measurement, record::Status, record::Workload;

struct RunRecord : record::RunRecord {
  std::string source;  // the name of the file it was read from
  int setup = 0;       // index into Results::setups

  const record::Ceiling* ceiling(std::string_view dtype) const;  // null if not measured
  std::string device_name() const;  // the device, else the CPU model, else "unknown device"
};

// The runs of one source on one device with one build: one series of measurements. A run that was interrupted
// and resumed is one setup.
struct Setup {
  std::string label;      // unique, short
  std::string source;     // the label of its file, shared by all setups in the file
  std::vector<int> runs;  // indices into Results::runs, in file order
};

struct CaseRecord : record::CaseRecord {
  int run_index = 0;  // into Results::runs
};

struct WorkloadRecord : record::WorkloadRecord {
  std::string source;  // the name of the file it was read from
};

// What was simulated counts nowhere as measured.
struct SimulatedRecord : record::SimulatedRecord {
  std::string source;  // the name of the file it was read from
};

// The picture of a mask, from the first case that has it.
struct MaskPicture {
  Workload workload;  // of that case
  std::optional<double> density;
  record::Picture picture;
};

struct Results {
  std::vector<RunRecord> runs;
  std::vector<Setup> setups;
  std::vector<CaseRecord> cases;          // if a setup measured a case twice, only the last record
  std::vector<WorkloadRecord> workloads;  // each once, however often its run was resumed
  std::vector<SimulatedRecord> simulated;
  std::vector<MaskPicture> pictures;  // the cases have none
  std::vector<std::string> warnings;  // for the user, one line each

  const RunRecord& run_of(const CaseRecord& c) const { return runs[static_cast<size_t>(c.run_index)]; }
  int setup_of(const CaseRecord& c) const { return run_of(c).setup; }
};

// Reads the text of one results file; messages and labels call it `name`. Throws an input error that names
// the line if anything is malformed or the schema is unknown. An incomplete last line is left out, with a
// warning.
Results parse_results(std::string_view text, std::string_view name);

// The results files among these files and folders, which contain a results.jsonl at any depth: each once.
std::vector<std::filesystem::path> results_files(const std::vector<std::filesystem::path>& paths);

// Reads those files into one Results.
Results read_results(const std::vector<std::filesystem::path>& paths);

}  // namespace longspan::report
