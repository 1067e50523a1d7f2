// Results as read back: runs and cases of one or several results files (docs/reference/results.md), checked,
// so that nothing behind this header has to distrust them.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "record/record.h"

namespace longspan::report {

using record::Facts, record::Fact, record::fact_text;
using record::Interval, record::Measurement, record::Status, record::Workload;

struct RunRecord : record::RunRecord {
  std::string source;  // the name under which its file was read
  int setup = 0;       // index into Results::setups

  const record::Ceiling* ceiling(std::string_view dtype) const;  // null where not measured
  std::string device_name() const;  // the device, else the CPU model, else "unknown device"
};

// The runs of one source on one device with one build: what a reader takes for one series of measurements. A
// run that was interrupted and resumed is one setup.
struct Setup {
  std::string label;      // unique, short
  std::string source;     // its file's label: that of several builds or machines in one file
  std::vector<int> runs;  // indices into Results::runs, in file order
};

struct CaseRecord : record::CaseRecord {
  int run_index = 0;  // into Results::runs
};

struct Results {
  std::vector<RunRecord> runs;
  std::vector<Setup> setups;
  std::vector<CaseRecord> cases;      // of a case measured twice in one setup, the last
  std::vector<std::string> warnings;  // for the user, one line each

  const RunRecord& run_of(const CaseRecord& c) const { return runs[static_cast<size_t>(c.run_index)]; }
  int setup_of(const CaseRecord& c) const { return run_of(c).setup; }
};

// Reads the text of one results file; `name` stands for it in messages and labels. Throws an input error that
// names the line for anything malformed and for a schema that this version does not know. A last line cut
// short while it was written is left out, with a warning.
Results parse_results(std::string_view text, std::string_view name);

// Reads files, and folders that hold a results.jsonl (at any depth), into one.
Results read_results(const std::vector<std::filesystem::path>& paths);

}  // namespace longspan::report
