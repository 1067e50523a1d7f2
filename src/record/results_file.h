// The results file of a run: reading lines, and appending them so that a crash can damage at most the last
// one. docs/reference/results.md describes the lines.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "record/file_calls.h"
#include "record/record.h"

namespace longspan::record {

// A line with its type and identifiers, before its other fields are read.
struct ResultsLine {
  // kWorkload: which cases are the steps of a workload. kSimulated: a prediction (`longspan simulate
  // --json`), which counts nowhere as a case. kOther: a type added by a later version.
  enum class Type { kRun, kCase, kWorkload, kSimulated, kOther };
  Type type = Type::kOther;
  std::string run;  // the run that the line describes or belongs to
  std::string id;   // of a case
  Json json;
};

// These throw only input errors. The caller adds the file and the line number.
ResultsLine parse_results_line(std::string_view text);
RunRecord run_from(const ResultsLine& line);
WorkloadRecord workload_record_from(const ResultsLine& line);
CaseRecord case_from(const ResultsLine& line);
SimulatedRecord simulated_from(const ResultsLine& line);

// An open results.jsonl, locked against other runs during its lifetime.
class ResultsFile {
 public:
  enum class Mode { kFresh, kResume };

  // Creates the folder and the file as needed. kFresh: the file must be new or empty. kResume: reads the
  // lines, and removes the last one if it was cut short; nothing else is ever removed. Throws an input error
  // that says what to do.
  ResultsFile(const std::string& folder, Mode mode, const FileCalls& calls = system_calls());

  const std::string& path() const { return path_; }
  const std::vector<ResultsLine>& earlier() const { return earlier_; }

  // Writes one line, with its checksum. The line is on disk when this returns; else an error.
  void append(const Json& line);

  // Throws if the file is no longer at its path: whoever looks there would not find what is written.
  void check_in_place() const;

 private:
  int open_in(const std::string& folder) const;
  void sync(const std::string& folder) const;
  void lock(Mode mode) const;
  std::string read_all() const;
  void read_and_repair();
  void add_earlier(std::string_view line);
  void repair_last_line(std::string_view line, size_t begin);
  void write_all(const std::string& text);

  std::string path_;
  const FileCalls& calls_;
  Descriptor file_;      // with the lock
  std::string failure_;  // of an earlier write
  std::vector<ResultsLine> earlier_;
};

}  // namespace longspan::record
