#include "base/input_file.h"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"

namespace longspan {
namespace {

// The descriptor of a file that is being read.
struct OpenFile {
  OpenFile(const std::string& path, const InputKind& kind);
  ~OpenFile() {
    if (fd >= 0) close(fd);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int fd = -1;
  int64_t bytes = 0;
};

std::string_view kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

OpenFile::OpenFile(const std::string& path, const InputKind& kind) {
  LONGSPAN_CHECK_INPUT(path.find('\0') == std::string::npos, "{}: a path cannot hold a NUL byte", path);
  // O_NONBLOCK: opening a pipe that nobody writes must not wait.
  fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  LONGSPAN_CHECK_INPUT(fd >= 0, "{}: cannot be opened: {}", path, std::strerror(errno));
  struct stat status {};
  const auto check = [&](bool good, const std::string& what) {
    if (good) return;
    close(fd);  // the destructor of an object that was not made does not run
    LONGSPAN_CHECK_INPUT(good, "{}: {}", path, what);
  };
  check(fstat(fd, &status) == 0, fmt::format("cannot be read: {}", std::strerror(errno)));
  check(S_ISREG(status.st_mode),
        fmt::format("is {}; {} must be a regular file", kind_of(status.st_mode), kind.name));
  bytes = status.st_size;
  check(bytes <= kind.most_bytes,
        fmt::format("has {} bytes; {} may have at most {}", bytes, kind.name, kind.most_bytes));
}

}  // namespace

void check_input_file(const std::string& path, const InputKind& kind) {
  const OpenFile file(path, kind);
}

std::string read_input_file(const std::string& path, const InputKind& kind) {
  const OpenFile file(path, kind);
  std::string text;
  text.reserve(static_cast<size_t>(file.bytes));
  // To the end, not to the size: files of /proc have no size, and others may grow.
  for (char block[1 << 16];;) {
    const ssize_t got = read(file.fd, block, sizeof block);
    if (got < 0 && errno == EINTR) continue;
    LONGSPAN_CHECK_INPUT(got >= 0, "{}: cannot be read: {}", path, std::strerror(errno));
    if (got == 0) return text;
    text.append(block, static_cast<size_t>(got));
    LONGSPAN_CHECK_INPUT(static_cast<int64_t>(text.size()) <= kind.most_bytes,
                         "{}: {} may have at most {} bytes", path, kind.name, kind.most_bytes);
  }
}

}  // namespace longspan
