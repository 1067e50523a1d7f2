#include "record/results_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "record/json_reader.h"

namespace longspan::record {
namespace {

// The fields that every line has.
struct Envelope {
  std::string type, run, id;
};

template <class V, Is<Envelope> S>
void visit(V& v, S& s) {
  v.field("type", s.type, "", kRequired);
  v.field("run", s.run, "");
  v.field("id", s.id, "");
}

void check_schema(const Json& line) {
  const auto schema = line.find("schema");
  LONGSPAN_CHECK_INPUT(schema != line.end() && !schema->is_null(),
                       "'schema' is missing: this is not a line of a longspan results file");
  LONGSPAN_CHECK_INPUT(schema->is_number_integer() && *schema == kSchema,
                       "schema {} is unknown; this longspan reads schema {}: use the longspan that wrote the "
                       "file, or a newer one",
                       schema->is_structured() ? schema->type_name()
                       : schema->is_string()   ? schema->get<std::string>()
                                               : schema->dump(),
                       kSchema);
}

}  // namespace

ResultsLine parse_results_line(std::string_view text) {
  ResultsLine line;
  line.json = parse_json(text);
  LONGSPAN_CHECK_INPUT(line.json.is_object(), "a JSON {}, not an object", line.json.type_name());
  check_schema(line.json);
  const auto envelope = from_json<Envelope>(line.json);
  if (envelope.type == "run") line.type = ResultsLine::Type::kRun;
  if (envelope.type == "case") line.type = ResultsLine::Type::kCase;
  if (line.type == ResultsLine::Type::kOther) return line;
  LONGSPAN_CHECK_INPUT(!envelope.run.empty(), "'run' is missing or empty");
  LONGSPAN_CHECK_INPUT(line.type == ResultsLine::Type::kRun || !envelope.id.empty(),
                       "'id' is missing or empty");
  line.run = envelope.run;
  line.id = envelope.id;
  return line;
}

RunRecord run_from(const ResultsLine& line) {
  return from_json<RunRecord>(line.json);
}

CaseRecord case_from(const ResultsLine& line) {
  return from_json<CaseRecord>(line.json);
}

ResultsFile::ResultsFile(const std::string& folder, Mode mode)
    : path_((std::filesystem::path(folder) / "results.jsonl").string()) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  LONGSPAN_CHECK_INPUT(!error, "--out {}: cannot be made: {}", folder, error.message());
  try {
    open_and_lock(mode);
    if (mode == Mode::kResume) repair_and_read();
  } catch (...) {
    if (fd_ >= 0) close(fd_);
    throw;
  }
}

ResultsFile::~ResultsFile() {
  close(fd_);  // and with it the lock
}

void ResultsFile::open_and_lock(Mode mode) {
  fd_ = open(path_.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  LONGSPAN_CHECK_INPUT(fd_ >= 0, "{}: cannot be opened: {}", path_, std::strerror(errno));
  LONGSPAN_CHECK_INPUT(flock(fd_, LOCK_EX | LOCK_NB) == 0,
                       "{}: another run is writing it; wait for it to end, or name another folder with --out",
                       path_);
  struct stat status {};
  LONGSPAN_CHECK(fstat(fd_, &status) == 0, "{}: {}", path_, std::strerror(errno));
  LONGSPAN_CHECK_INPUT(mode == Mode::kResume || status.st_size == 0,
                       "{} exists; complete that run with --resume, or name another folder with --out",
                       path_);
}

void ResultsFile::repair_and_read() {
  std::string text;
  char block[1 << 16];
  for (ssize_t got = 0; (got = pread(fd_, block, sizeof block, static_cast<off_t>(text.size()))) > 0;) {
    text.append(block, static_cast<size_t>(got));
  }
  const size_t last_newline = text.rfind('\n');
  const size_t whole = last_newline == std::string::npos ? 0 : last_newline + 1;
  if (whole != text.size()) {
    LONGSPAN_CHECK(ftruncate(fd_, static_cast<off_t>(whole)) == 0 && fsync(fd_) == 0,
                   "{}: the incomplete last line cannot be removed: {}", path_, std::strerror(errno));
  }
  int64_t number = 0;
  for (size_t begin = 0; begin < whole;) {
    const size_t end = text.find('\n', begin);
    ++number;
    try {
      earlier_.push_back(parse_results_line(std::string_view(text).substr(begin, end - begin)));
    } catch (const Error& error) {
      LONGSPAN_CHECK_INPUT(false, "{}:{}: {}; fix or remove the line, or name another folder with --out",
                           path_, number, error.what());
    }
    begin = end + 1;
  }
}

void ResultsFile::append(const Json& line) {
  const std::string text = text_of(line) + "\n";
  const off_t before = lseek(fd_, 0, SEEK_END);
  ssize_t written = 0;
  do {
    written = write(fd_, text.data(), text.size());
  } while (written < 0 && errno == EINTR);
  if (written != static_cast<ssize_t>(text.size())) {
    const std::string why = written < 0 ? std::strerror(errno) : "the disk is full";
    // Best effort: --resume also removes an incomplete line.
    if (written > 0 && ftruncate(fd_, before) != 0) { /* the message below reports the failure */
    }
    LONGSPAN_CHECK_INPUT(false, "{}: cannot be written: {}; free disk space and continue with --resume",
                         path_, why);
  }
  fdatasync(fd_);
}

}  // namespace longspan::record
