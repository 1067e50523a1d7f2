// The results file of a run: lines read back, and lines appended so that no crash can lose or tear more than
// the last. docs/reference/results.md says what the lines hold.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "record/record.h"

namespace longspan::record {

// A line as it is told apart before its fields are read.
struct ResultsLine {
  enum class Type { kRun, kCase, kOther };  // kOther: of a later version
  Type type = Type::kOther;
  std::string run;  // the run that it announces or belongs to
  std::string id;   // of a case
  Json json;
};

// These throw only input errors, whatever the text. The caller adds the file and the line.
ResultsLine parse_results_line(std::string_view text);
RunRecord run_from(const ResultsLine& line);
CaseRecord case_from(const ResultsLine& line);

// An open results.jsonl, locked against other runs while it lives.
class ResultsFile {
 public:
  enum class Mode { kFresh, kResume };

  // Makes the folder and the file as needed. kFresh: the file must be new or empty. kResume: a half line at
  // the end is removed, and the lines before are read. Throws an input error that says what to do.
  ResultsFile(const std::string& folder, Mode mode);
  ~ResultsFile();
  ResultsFile(const ResultsFile&) = delete;
  ResultsFile& operator=(const ResultsFile&) = delete;

  const std::string& path() const { return path_; }
  const std::vector<ResultsLine>& earlier() const { return earlier_; }

  // One line by one write, and on the disk when this returns.
  void append(const Json& line);

 private:
  void open_and_lock(Mode mode);
  void repair_and_read();

  std::string path_;
  int fd_ = -1;
  std::vector<ResultsLine> earlier_;
};

}  // namespace longspan::record
