#include "record/results_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "record/checksum.h"
#include "record/json_reader.h"

namespace longspan::record {
namespace {

namespace fs = std::filesystem;

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
  check_checksum(text, line.json);
  check_schema(line.json);
  const auto envelope = from_json<Envelope>(line.json);
  if (envelope.type == "run") line.type = ResultsLine::Type::kRun;
  if (envelope.type == "case") line.type = ResultsLine::Type::kCase;
  if (envelope.type == "workload") line.type = ResultsLine::Type::kWorkload;
  if (envelope.type == "simulated") line.type = ResultsLine::Type::kSimulated;
  if (line.type != ResultsLine::Type::kRun && line.type != ResultsLine::Type::kCase) return line;
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

WorkloadRecord workload_record_from(const ResultsLine& line) {
  return from_json<WorkloadRecord>(line.json);
}

CaseRecord case_from(const ResultsLine& line) {
  return from_json<CaseRecord>(line.json);
}

SimulatedRecord simulated_from(const ResultsLine& line) {
  return from_json<SimulatedRecord>(line.json);
}

ResultsFile::ResultsFile(const std::string& folder, Mode mode, const FileCalls& calls)
    : path_((fs::path(folder) / "results.jsonl").string()), calls_(calls), file_(open_in(folder)) {
  lock(mode);
  sync(folder);
  if (mode == Mode::kResume) read_and_repair();
}

// Makes the folder and the file as needed.
int ResultsFile::open_in(const std::string& folder) const {
  std::error_code error;
  const fs::path whole = fs::absolute(folder);
  fs::path existing = whole;
  while (!fs::exists(existing, error)) existing = existing.parent_path();
  fs::create_directories(whole, error);
  LONGSPAN_CHECK_INPUT(!error, "--out {}: cannot be made: {}", folder, error.message());
  for (fs::path made = whole; made != existing; made = made.parent_path()) sync(made.parent_path().string());
  const int fd = open_file(calls_, path_, O_RDWR | O_CREAT | O_APPEND, 0644);
  LONGSPAN_CHECK_INPUT(fd >= 0, "{}: cannot be opened: {}", path_, std::strerror(errno));
  return fd;
}

void ResultsFile::sync(const std::string& folder) const {
  LONGSPAN_CHECK_INPUT(sync_folder(calls_, folder), "{}: cannot be written to disk: {}", folder,
                       std::strerror(errno));
}

void ResultsFile::lock(Mode mode) const {
  if (uninterrupted([&] { return calls_.flock(file_.get(), LOCK_EX | LOCK_NB); }) != 0) {
    LONGSPAN_CHECK_INPUT(
        errno != EWOULDBLOCK,
        "{}: another run is writing it; wait for it to end, or name another folder with --out", path_);
    LONGSPAN_CHECK_INPUT(false, "{}: cannot be locked: {}; name a folder of another file system with --out",
                         path_, std::strerror(errno));
  }
  struct stat status {};
  LONGSPAN_CHECK_INPUT(uninterrupted([&] { return calls_.fstat(file_.get(), &status); }) == 0, "{}: {}",
                       path_, std::strerror(errno));
  LONGSPAN_CHECK_INPUT(S_ISREG(status.st_mode), "{}: not a regular file", path_);
  LONGSPAN_CHECK_INPUT(mode == Mode::kResume || status.st_size == 0,
                       "{} exists; complete that run with --resume, or name another folder with --out",
                       path_);
}

std::string ResultsFile::read_all() const {
  std::string text;
  std::vector<char> block(size_t{1} << 16);
  while (true) {
    const ssize_t got = uninterrupted([&] {
      return calls_.pread(file_.get(), block.data(), block.size(), static_cast<off_t>(text.size()));
    });
    if (got == 0) return text;
    LONGSPAN_CHECK_INPUT(got > 0, "{}: cannot be read: {}; nothing was changed", path_, std::strerror(errno));
    text.append(block.data(), static_cast<size_t>(got));
  }
}

// Nothing is written before all that is there has been read and understood.
void ResultsFile::read_and_repair() {
  const std::string text = read_all();
  size_t begin = 0;
  for (size_t end = 0; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    add_earlier(std::string_view(text).substr(begin, end - begin));
  if (begin < text.size()) repair_last_line(std::string_view(text).substr(begin), begin);
}

void ResultsFile::add_earlier(std::string_view line) {
  try {
    earlier_.push_back(parse_results_line(line));
  } catch (const Error& error) {
    LONGSPAN_CHECK_INPUT(false, "{}:{}: {}; fix or remove the line, or name another folder with --out", path_,
                         earlier_.size() + 1, error.what());
  }
}

void ResultsFile::repair_last_line(std::string_view line, size_t begin) {
  if (!Json::accept(line)) {
    // A line that was cut short begins as every line does. Any other file is not ours to change.
    constexpr std::string_view kBegin = R"({"type":")";
    const size_t compared = std::min(line.size(), kBegin.size());
    LONGSPAN_CHECK_INPUT(begin > 0 || line.substr(0, compared) == kBegin.substr(0, compared),
                         "{}: this is not a results file; name another folder with --out", path_);
    const int fd = file_.get();
    const bool removed =
        uninterrupted([&] { return calls_.ftruncate(fd, static_cast<off_t>(begin)); }) == 0 &&
        uninterrupted([&] { return calls_.fdatasync(fd); }) == 0;
    LONGSPAN_CHECK_INPUT(removed, "{}: the incomplete last line cannot be removed: {}", path_,
                         std::strerror(errno));
    return;
  }
  add_earlier(line);
  write_all("\n");  // the line is whole, only its end was lost
}

void ResultsFile::append(const Json& line) {
  write_all(text_with_checksum(line) + "\n");
  check_in_place();  // a file that was moved has kept the line
}

void ResultsFile::check_in_place() const {
  struct stat open {};
  struct stat named {};
  if (fstat(file_.get(), &open) != 0) return;
  const bool found = stat(path_.c_str(), &named) == 0;
  if (found ? named.st_dev == open.st_dev && named.st_ino == open.st_ino
            : errno != ENOENT && errno != ENOTDIR)
    return;
  std::error_code none;
  const std::string now = fs::read_symlink(fmt::format("/proc/self/fd/{}", file_.get()), none).string();
  const std::string what =
      open.st_nlink == 0
          ? fmt::format("{}: was removed during the run, and its lines with it; start the run again", path_)
          : fmt::format("{}: was moved during the run, to {}; move it back and continue with --resume", path_,
                        now);
  throw Error(ErrorKind::kPeer, what, __FILE__, __LINE__, "");
}

// After a failure nothing more is written: a further line could not be told from the rest of a broken one.
void ResultsFile::write_all(const std::string& text) {
  LONGSPAN_CHECK_INPUT(failure_.empty(), "{}", failure_);
  const int fd = file_.get();
  const off_t before = lseek(fd, 0, SEEK_END);
  if (!write_whole(calls_, fd, text)) {
    failure_ = fmt::format("{}: cannot be written: {}; free disk space and continue with --resume", path_,
                           std::strerror(errno));
    // Best effort: --resume also removes an incomplete line.
    [[maybe_unused]] const int cut = uninterrupted([&] { return calls_.ftruncate(fd, before); });
  } else if (uninterrupted([&] { return calls_.fdatasync(fd); }) != 0) {
    failure_ = fmt::format("{}: cannot be written to disk: {}; check the disk and continue with --resume",
                           path_, std::strerror(errno));
  }
  LONGSPAN_CHECK_INPUT(failure_.empty(), "{}", failure_);
}

}  // namespace longspan::record
