#include "report/output_file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"
#include "base/random_bits.h"

namespace longspan::report {
namespace {

namespace fs = std::filesystem;
using record::Descriptor, record::uninterrupted;

bool names_stdout(const fs::path& path) {
  struct stat named {};
  struct stat out {};
  return stat(path.c_str(), &named) == 0 && !S_ISCHR(named.st_mode) && fstat(STDOUT_FILENO, &out) == 0 &&
         named.st_dev == out.st_dev && named.st_ino == out.st_ino;
}

bool begins_with(const fs::path& path, std::string_view begin) {
  std::string text(begin.size(), '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  return file.good() && text == begin;
}

// A file that is removed at the end of its scope, unless it has been renamed.
class Temporary {
 public:
  explicit Temporary(std::string path) : path_(std::move(path)) {}
  ~Temporary() { unlink(path_.c_str()); }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

 private:
  std::string path_;
};

}  // namespace

OutputFile::OutputFile(std::string_view option, const std::string& path, Kind kind,
                       const std::vector<fs::path>& inputs, const record::FileCalls& calls)
    : name_(fmt::format("{} {}", option, path)),
      path_(path),
      kind_(kind),
      inputs_(inputs),
      calls_(calls),
      stdout_(names_stdout(path)) {
  std::error_code none;
  const fs::file_status status = fs::status(path_, none);
  replaced_ = !stdout_ && (!fs::exists(status) || fs::is_regular_file(status));
  // A link stays a link: the file that it names is replaced.
  if (replaced_ && fs::exists(status)) path_ = fs::canonical(path_);
  check();
}

void OutputFile::check() const {
  std::error_code none;
  LONGSPAN_CHECK_INPUT(!fs::is_directory(path_, none), "{}: is a folder; name a file in it", name_);
  for (const fs::path& input : inputs_) {
    LONGSPAN_CHECK_INPUT(!fs::equivalent(path_, input, none), "{}: is an input, too; name another file",
                         name_);
  }
  if (!replaced_) return;
  LONGSPAN_CHECK_INPUT(fs::exists(path_, none) || !fs::is_symlink(fs::symlink_status(path_, none)),
                       "{}: is a link to a file that does not exist; name that file", name_);
  expect(access(folder().c_str(), R_OK | W_OK) == 0);  // it is read to be synced
  if (!fs::exists(path_, none)) return;
  expect(access(path_.c_str(), R_OK | W_OK) == 0);
  LONGSPAN_CHECK_INPUT(fs::file_size(path_, none) == 0 || begins_with(path_, kind_.begin),
                       "{}: exists, and is not {}; remove it, or name another file", name_, kind_.name);
}

// Throws what errno says.
void OutputFile::expect(bool good) const {
  LONGSPAN_CHECK_INPUT(good, "{}: cannot be written: {}", name_, std::strerror(errno));
}

std::string OutputFile::folder() const {
  return path_.has_parent_path() ? path_.parent_path().string() : ".";
}

void OutputFile::write(std::string_view content) const {
  check();
  if (replaced_) {
    replace(content);
  } else {
    const Descriptor file(open_file(calls_, path_.string(), O_WRONLY | O_APPEND));
    expect(file.is_open() && write_whole(calls_, file.get(), content));
  }
}

void OutputFile::replace(std::string_view content) const {
  const std::string path = fmt::format("{}/.longspan-{:016x}", folder(), random_bits());
  const Descriptor file(open_file(calls_, path, O_WRONLY | O_CREAT | O_EXCL, 0666));
  expect(file.is_open());
  const Temporary temporary(path);
  struct stat old {};
  if (stat(path_.c_str(), &old) == 0) fchmod(file.get(), old.st_mode & 0777);
  expect(write_whole(calls_, file.get(), content));
  expect(uninterrupted([&] { return calls_.fsync(file.get()); }) == 0);
  expect(calls_.rename(path.c_str(), path_.c_str()) == 0);
  expect(sync_folder(calls_, folder()));
}

}  // namespace longspan::report
